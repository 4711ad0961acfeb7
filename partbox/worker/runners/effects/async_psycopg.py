"""Transactions on an async connection of psycopg, in the event loop of async handlers. The transactor's thread submits
each step to the loop and waits for the step. The call of a handler with its savepoint is one step."""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from psycopg import AsyncConnection, OperationalError

from partbox.db.connect import connect_async
from partbox.db.deadline import WatchedAsyncConnection, WatchedConnection, allow_long_statements
from partbox.db.delivery import async_effects
from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.outcomes import Done
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave, build_save_arguments
from partbox.worker.fork_safety import exit_forked
from partbox.worker.runners.effects.effects import Effects, NotDone, PsycopgEffects
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop, begin_handler, run_in_context
from partbox.worker.runners.loop_hosts import ending_tasks, must_end

T = TypeVar("T")
CHECK_INTERVAL = 1.0  # seconds between two checks whether the loop has ended
LOOP_ENDED = "the event loop of handlers has ended, or the worker is ending"


class LoopCalls:
    """A bridge by which the thread of transactional handlers runs coroutines in the event loop, and waits for each in
    turn."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None  # the task that runs a handler

    def run_and_wait(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the event loop and wait in this thread for its result."""
        # OperationalError is raised if the event loop or the worker is ending.
        future = self._loop.submit(function)
        while True:
            try:
                return future.result(CHECK_INTERVAL)
            except TimeoutError:
                if future.done():
                    raise
                if self._loop.has_ended:
                    future.cancel()
            except CancelledError as error:
                raise OperationalError(LOOP_ENDED) from error
            except PartboxError as error:
                # The loop is closed. An error of a handler comes back as a value.
                raise OperationalError(str(error)) from error

    async def call_handler(
        self, context: contextvars.Context, endpoint: Endpoint, event: DeliveredEvent, *handler_args: Any
    ) -> object:
        """Call an async transactional handler with an event. Return its value or its error."""
        # CancelledError is raised if the handler was interrupted.
        self._task = asyncio.current_task()
        try:
            begin_call = partial(run_in_context, context, begin_handler, endpoint.wrapped_call, event)
            return await EventLoop.run_handler(
                lambda handler_args: begin_call(*handler_args), handler_args, endpoint.handler.timeout
            )
        finally:
            self._task = None

    def interrupt(self) -> None:
        """Cancel the async handler that runs now. Any thread may call this."""
        # The cancellation ends the handler's task for good.
        self._loop.call_soon(self._cancel_task)

    def _cancel_task(self) -> None:
        if self._task is not None:
            ending_tasks.add(self._task)
            self._task.cancel()


class AsyncPsycopgEffects(PsycopgEffects):
    """The transactions of async handlers with `transactional=True`, on an async psycopg connection."""

    needs_lent_conn: ClassVar[bool] = False
    conn: WatchedAsyncConnection  # type: ignore[assignment]

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        Effects.__init__(self, context, session, loop)
        self._loop_calls = LoopCalls(loop)
        self.conn = self._loop_calls.run_and_wait(lambda: open_connection(context, session))
        self.handler_args = (self.conn,)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self.conn.transaction()
        self._loop_calls.run_and_wait(block.__aenter__)
        try:
            yield
        except BaseException as error:
            self._loop_calls.run_and_wait(partial(block.__aexit__, type(error), error, error.__traceback__))
            raise
        self._loop_calls.run_and_wait(partial(block.__aexit__, None, None, None))

    def run_script(self, script: bytes) -> tuple[str | None, ...]:
        return self._loop_calls.run_and_wait(lambda: async_effects.run_script(self.conn, script))

    def call_in_savepoint(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        context = contextvars.copy_context()
        return self._loop_calls.run_and_wait(lambda: self._call_in_savepoint(context, endpoint, event))

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        return self._loop_calls.run_and_wait(lambda: save_async(self, self.conn, me, saves))

    def interrupt(self) -> None:
        self._loop_calls.interrupt()

    def close(self) -> None:
        with suppress(Exception):
            self._loop_calls.run_and_wait(self.conn.close)
        # The loop may have ended, and `close` above needs the loop.
        self.conn.pgconn.finish()

    async def _call_in_savepoint(
        self, context: contextvars.Context, endpoint: Endpoint, event: DeliveredEvent
    ) -> object:
        result: object = None
        try:
            async with self._savepoint():
                with allow_long_statements(self.conn):
                    result = await self._loop_calls.call_handler(context, endpoint, event, *self.handler_args)
                if self.context.engine.is_forked:
                    exit_forked(result)
                if result is not None and not isinstance(result, Done):
                    raise NotDone
        except NotDone:
            return result
        except BaseException as error:
            if must_end(asyncio.current_task()):
                raise
            return result if isinstance(result, BaseException) else error
        return result

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[None]:
        try:
            yield
            await async_effects.run_script(self.conn, self.build_kept_script())
        except BaseException:
            if not self.conn.closed:
                await async_effects.rollback_event(self.conn)
            raise


async def open_connection(context: Context, session: WatchedConnection) -> WatchedAsyncConnection:
    """Open the async psycopg connection of a worker's transactional handlers, in the running event loop."""
    lease, pooler = context.settings.lease, context.settings.pooler or session.is_pooled
    return await connect_async(context.dsn(), lease=lease, pooler=pooler, name="partbox effects")


async def save_async(
    effects: Effects, conn: AsyncConnection[Any], me: UUID, saves: Sequence[PartitionSave]
) -> tuple[set[int], float]:
    """Save how far the events of each partition have been delivered, on an async connection."""
    # This is the last statement before the commit, and the async counterpart of `Effects.save`.
    context = effects.context
    await async_effects.run_script(conn, effects.build_end_script())
    return await async_effects.save(
        conn, effects.session, context.schema, context.subscription, me, build_save_arguments(saves)
    )
