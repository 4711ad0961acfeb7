"""The SQL of operators: dead and blocked events, subscriptions, limits, purges, imports, archives and more."""
