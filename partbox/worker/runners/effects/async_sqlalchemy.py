"""Transactions of SQLAlchemy on an asynchronous connection of psycopg, in the event loop of async handlers.

SQLAlchemy's asynchronous side is its synchronous one in a greenlet, which awaits what the driver does. So is this: a
transaction runs in such a greenlet as it does on a plain connection, but for what is awaited, the handlers above all.
The transactor's thread waits for the whole of it: to submit each step took a tenth of the time of an event.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from uuid import UUID

from psycopg import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection as OuterConnection
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.util import await_only, greenlet_spawn

from partbox.db.deadline import WatchedAsyncConnection, WatchedConnection
from partbox.db.delivery import async_effects
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.publish.integrations.sqlalchemy_end import read_marks
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.runners.effects.async_psycopg import ENDED, LoopCalls, connected, saved
from partbox.worker.runners.effects.sessions import Joined, handler_class, joined
from partbox.worker.runners.effects.sqlalchemy import OF_ONE, SqlalchemyEffects, psycopg_errors, quicken
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop


class AsyncSqlalchemyEffects(SqlalchemyEffects):
    """`transactional="sqlalchemy"` on an `async def`."""

    lends: ClassVar[bool] = False
    conn: WatchedAsyncConnection  # type: ignore[assignment]

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        self._calls = LoopCalls(loop)
        self._interrupted = False
        self.conn = self._calls.wait(lambda: connected(context, session))
        with psycopg_errors():
            self._outer = self._calls.wait(self._connect)
        super().__init__(context, session, loop)

    @property
    def is_intact(self) -> bool:
        return not self._interrupted and super().is_intact

    def drive(self, run: Callable[[], object]) -> None:
        self._calls.wait(lambda: greenlet_spawn(run))

    def run(self, script: bytes) -> tuple[str | None, ...]:
        return await_only(async_effects.run_script(self.conn, script))

    def handle(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        try:
            self._ran_in = contextvars.copy_context()
            return await_only(self._calls.handle(self._ran_in, endpoint, event, *self.given))
        except asyncio.CancelledError as error:  # to end: what a handler has cancelled comes back as a value
            self._interrupted = True
            raise OperationalError(ENDED) from error

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        read_marks(self._on)
        return await_only(saved(self, self.conn, me, saves))

    def interrupt(self) -> None:
        self._calls.interrupt()

    def close(self) -> None:
        with suppress(Exception):
            self._run(super().close)
            self._calls.wait(self.conn.close)
        self.conn.pgconn.finish()  # if the loop has ended

    @contextmanager
    def _session_for(self, handler: Handler) -> Iterator[tuple[Joined, Any]]:
        kind: Any = handler.session or AsyncSession
        is_scoped = issubclass(kind, async_scoped_session)
        made: Any = AsyncSession if is_scoped else kind
        guarded = handler_class(made.sync_session_class)
        session = made(bind=self._outer, sync_session_class=guarded, join_transaction_mode="rollback_only")
        with joined(self._on, session.sync_session) as here:
            always: Any = lambda: session  # noqa: E731  a factory
            yield here, async_scoped_session(always, scopefunc=lambda: None) if is_scoped else session

    def _event_context(self) -> contextvars.Context:
        return self._ran_in

    def _connection(self) -> Any:
        return self._outer.sync_connection

    def _set_autocommit(self, value: bool) -> None:
        await_only(self.conn.set_autocommit(value))

    def _roll_back_driver(self) -> None:
        await_only(self.conn.rollback())

    def _run(self, call: Callable[[], object]) -> None:
        self._calls.wait(lambda: greenlet_spawn(call))

    async def _connect(self) -> OuterConnection:
        async def own() -> Any:
            return self.conn

        engine = create_async_engine("postgresql+psycopg://", async_creator=own, **OF_ONE)
        quicken(engine.sync_engine, self.run)
        return await engine.connect()
