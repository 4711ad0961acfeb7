"""The transactions that handlers have their effects in, on whatever library: one file a kind.

The transactor asks `kinds` for the `Effects` of a kind and drives them (`effects`): begin, a savepoint around each
handler, the save as the last statement, the commit. `psycopg` and `sqlalchemy` are on the connection that the poller
lends, `django` on Django's own. `sessions` has the sessions of SQLAlchemy that handlers get.
"""
