"""The transactions of transactional handlers, one module per library. The transactor drives the `Effects` of each kind
of transaction: begin, a savepoint around each handler, the save as the last statement, the commit."""
