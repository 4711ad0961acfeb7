"""The transactions that handlers have their effects in, on whatever library: one file a kind.

The transactor asks `kinds` for the `Effects` of a kind and drives them (`effects`): begin, a savepoint around each
handler, the save as the last statement, the commit. `psycopg` and `sqlalchemy` are on the connection that the poller
lends, `django` on Django's own, and the asynchronous ones on one of their own, in the event loop of async handlers:
the transactor's thread submits what is to be done there and waits (`loop_calls`). `sessions` has what handlers get of
SQLAlchemy.
"""
