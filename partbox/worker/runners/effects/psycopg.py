"""Transactions on the lent connection, which handlers get as it is."""

from contextlib import AbstractContextManager

from partbox.db.deadline import WatchedConnection
from partbox.handlers import Handler
from partbox.worker.context import Context
from partbox.worker.runners.effects.effects import Effects
from partbox.worker.runners.event_loop import EventLoop


class PsycopgEffects(Effects):
    """`transactional=True` on a plain function."""

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        super().__init__(context, session, loop)
        self.conn = session
        self.given = (self.conn,)

    def transaction(self) -> AbstractContextManager[object]:
        return self.conn.transaction()

    def savepoint(self, handler: Handler) -> AbstractContextManager[object]:
        return self.conn.transaction()
