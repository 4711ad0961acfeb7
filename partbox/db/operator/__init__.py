"""The SQL of operators: dead and blocked events, subscriptions, limits, purges, rebases, imports, archives and
segments.

Each module has one function per named query.
"""
