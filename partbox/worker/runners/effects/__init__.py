"""The transactions of transactional handlers, one module per library.

The transactor drives the `Effects` of each kind of transaction: begin, a savepoint around each handler, the save as the
last statement, the commit. `PsycopgEffects` and `sqlalchemy` use the connection that the poller lends, `django` uses
Django's own. The async kinds have a connection of their own in the event loop of async handlers, to which the
transactor's thread submits each step (`LoopCalls`). `sessions` has the SQLAlchemy sessions that handlers receive."""
