"""Transactions of SQLAlchemy on an async connection of psycopg, in the event loop of async handlers.

SQLAlchemy's async side is its sync side in a greenlet that awaits the driver, and so is a transaction here. The
transactor's thread waits for the whole transaction, because submitting each step took a tenth of the time of an
event."""

import asyncio
import contextvars
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from uuid import UUID

from psycopg import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection as SqlAsyncConnection
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, create_async_engine
from sqlalchemy.util import await_only, greenlet_spawn

from partbox.db.deadline import WatchedAsyncConnection, WatchedConnection
from partbox.db.delivery import async_effects
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.publish.integrations.sqlalchemy_end import read_marks
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave
from partbox.worker.runners.effects.async_psycopg import LOOP_ENDED, LoopCalls, open_connection, save_async
from partbox.worker.runners.effects.sessions import JoinedSession, guard_class, join_session
from partbox.worker.runners.effects.sqlalchemy import (
    SINGLE_CONN_OPTIONS,
    SqlalchemyEffects,
    psycopg_errors,
    send_plain_savepoints,
)
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop


class AsyncSqlalchemyEffects(SqlalchemyEffects):
    """The transactions of async handlers with `transactional="sqlalchemy"`, on an async SQLAlchemy connection."""

    needs_lent_conn: ClassVar[bool] = False
    conn: WatchedAsyncConnection  # type: ignore[assignment]

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        self._loop_calls = LoopCalls(loop)
        self._was_interrupted = False
        self.conn = self._loop_calls.run_and_wait(lambda: open_connection(context, session))
        with psycopg_errors():
            self._async_conn = self._loop_calls.run_and_wait(self._connect)
        super().__init__(context, session, loop)

    @property
    def is_intact(self) -> bool:
        return not self._was_interrupted and super().is_intact

    def drive(self, run: Callable[[], object]) -> None:
        self._loop_calls.run_and_wait(lambda: greenlet_spawn(run))

    def run_script(self, script: bytes) -> tuple[str | None, ...]:
        return await_only(async_effects.run_script(self.conn, script))

    def call_handler(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        try:
            self._handler_context = contextvars.copy_context()
            return await_only(self._loop_calls.call_handler(self._handler_context, endpoint, event, *self.handler_args))
        except asyncio.CancelledError as error:
            # The worker ends. A cancellation by a handler comes back as a value.
            self._was_interrupted = True
            raise OperationalError(LOOP_ENDED) from error

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        read_marks(self._sql_conn)
        return await_only(save_async(self, self.conn, me, saves))

    def interrupt(self) -> None:
        self._loop_calls.interrupt()

    def close(self) -> None:
        with suppress(Exception):
            self._run_in_greenlet(super().close)
            self._loop_calls.run_and_wait(self.conn.close)
        # The loop may have ended, and `close` above needs the loop.
        self.conn.pgconn.finish()

    @contextmanager
    def _open_session(self, handler: Handler) -> Iterator[tuple[JoinedSession, Any]]:
        kind: Any = handler.session or AsyncSession
        is_scoped = issubclass(kind, async_scoped_session)
        base_class: Any = AsyncSession if is_scoped else kind
        guarded = guard_class(base_class.sync_session_class)
        session = base_class(bind=self._async_conn, sync_session_class=guarded, join_transaction_mode="rollback_only")
        with join_session(self._sql_conn, session.sync_session) as joined:
            factory: Any = lambda: session  # noqa: E731  a factory
            yield joined, async_scoped_session(factory, scopefunc=lambda: None) if is_scoped else session

    def _get_event_context(self) -> contextvars.Context:
        return self._handler_context

    def _get_sql_conn(self) -> Any:
        return self._async_conn.sync_connection

    def _set_autocommit(self, value: bool) -> None:
        await_only(self.conn.set_autocommit(value))

    def _roll_back_driver(self) -> None:
        await_only(self.conn.rollback())

    def _run_in_greenlet(self, call: Callable[[], object]) -> None:
        self._loop_calls.run_and_wait(lambda: greenlet_spawn(call))

    async def _connect(self) -> SqlAsyncConnection:
        async def own_connection() -> Any:
            return self.conn

        engine = create_async_engine("postgresql+psycopg://", async_creator=own_connection, **SINGLE_CONN_OPTIONS)
        send_plain_savepoints(engine.sync_engine, self.run_script)
        return await engine.connect()
