"""The transactions that handlers have their effects in, on whatever library: one file a kind.

The transactor has the `Effects` of each kind and drives them (`effects`): begin, a savepoint around each handler, the
save as the last statement, the commit. `PsycopgEffects` and `sqlalchemy` are on the connection that the poller
lends, `django` on Django's own, and the asynchronous ones on one of their own, in the event loop of async handlers:
the transactor's thread submits what is to be done there and waits (`LoopCalls`). `sessions` has what handlers get of
SQLAlchemy.
"""
