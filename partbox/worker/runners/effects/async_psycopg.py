"""Transactions of an asynchronous connection of psycopg, in the event loop of async handlers.

The connection is one of its own. The transactor's thread submits each step to the loop, and waits for it; the call of a
handler with its savepoint is one.
"""

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
from partbox.db.deadline import WatchedAsyncConnection, WatchedConnection, allowing
from partbox.db.delivery import async_effects
from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.outcomes import Done
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave, sent
from partbox.worker.fork_safety import leave
from partbox.worker.runners.effects.effects import Effects, PsycopgEffects, Undone
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop, begin, run_in
from partbox.worker.runners.loop_hosts import must_end, told_to_end

T = TypeVar("T")
LOOK = 1.0  # seconds between two looks whether the loop has ended
ENDED = "the event loop of handlers has ended, or the worker is ending"


class LoopCalls:
    """Runs coroutines in the loop, one at a time, and waits for each."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None  # that runs a handler

    def wait(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it in the loop, and wait for its end. OperationalError if the loop has ended, or the worker is ending."""
        future = self._loop.submit(function)
        while True:
            try:
                return future.result(LOOK)
            except TimeoutError:
                if future.done():
                    raise
                if self._loop.ended:
                    future.cancel()
            except CancelledError as error:
                raise OperationalError(ENDED) from error
            except PartboxError as error:  # the loop is closed; what handlers raise comes back as a value
                raise OperationalError(str(error)) from error

    async def handle(
        self, context: contextvars.Context, endpoint: Endpoint, event: DeliveredEvent, *given: Any
    ) -> object:
        """Call the handler; return what it returned or raised. CancelledError if it was interrupted."""
        self._task = asyncio.current_task()
        try:
            begun = partial(run_in, context, begin, endpoint.uncontained, event)
            return await EventLoop.call(lambda given: begun(*given), given, endpoint.handler.timeout)
        finally:
            self._task = None

    def interrupt(self) -> None:
        """Cancel the handler that runs, for good. Any thread."""
        self._loop.soon(self._end_task)

    def _end_task(self) -> None:
        if self._task is not None:
            told_to_end.add(self._task)
            self._task.cancel()


class AsyncPsycopgEffects(PsycopgEffects):
    """`transactional=True` on an `async def`."""

    lends: ClassVar[bool] = False
    conn: WatchedAsyncConnection  # type: ignore[assignment]

    def __init__(self, context: Context, session: WatchedConnection, loop: EventLoop) -> None:
        Effects.__init__(self, context, session, loop)
        self._calls = LoopCalls(loop)
        self.conn = self._calls.wait(lambda: connected(context, session))
        self.given = (self.conn,)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self.conn.transaction()
        self._calls.wait(block.__aenter__)
        try:
            yield
        except BaseException as error:
            self._calls.wait(partial(block.__aexit__, type(error), error, error.__traceback__))
            raise
        self._calls.wait(partial(block.__aexit__, None, None, None))

    def run(self, script: bytes) -> tuple[str | None, ...]:
        return self._calls.wait(lambda: async_effects.run_script(self.conn, script))

    def call(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        context = contextvars.copy_context()
        return self._calls.wait(lambda: self._call(context, endpoint, event))

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        return self._calls.wait(lambda: saved(self, self.conn, me, saves))

    def interrupt(self) -> None:
        self._calls.interrupt()

    def close(self) -> None:
        with suppress(Exception):
            self._calls.wait(self.conn.close)
        self.conn.pgconn.finish()  # if the loop has ended

    async def _call(self, context: contextvars.Context, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler in a savepoint, rolled back unless the event is done; return what it returned or raised."""
        result: object = None
        try:
            async with self._savepoint():
                with allowing(self.conn):
                    result = await self._calls.handle(context, endpoint, event, *self.given)
                if self.context.engine.forked:
                    leave(result)
                if result is not None and not isinstance(result, Done):
                    raise Undone
        except Undone:
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
            await async_effects.run_script(self.conn, self.kept())
        except BaseException:
            if not self.conn.closed:
                await async_effects.undo(self.conn)
            raise


async def connected(context: Context, session: WatchedConnection) -> WatchedAsyncConnection:
    """A connection for a worker's handlers, in the loop that runs."""
    lease, pooler = context.settings.lease, context.settings.pooler or session.pooled
    return await connect_async(context.dsn(), lease=lease, pooler=pooler, name="partbox effects")


async def saved(
    effects: Effects, conn: AsyncConnection[Any], me: UUID, saves: Sequence[PartitionSave]
) -> tuple[set[int], float]:
    """`Effects.save` on this connection."""
    context = effects.context
    await async_effects.run_script(conn, effects.end())
    return await async_effects.save(conn, effects.session, context.schema, context.subscription, me, sent(saves))
