"""Transactions of an asynchronous connection of psycopg, in the event loop of async handlers.

The connection is one of its own. The transactor's thread submits each step to the loop, and waits for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from psycopg import AsyncConnection, OperationalError
from psycopg.pq import TransactionStatus

from partbox.db.connect import connect_async
from partbox.db.deadline import WatchedConnection, allowed, watched
from partbox.db.delivery import async_effects
from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.handlers import Handler
from partbox.outcomes import Done
from partbox.worker.context import Context
from partbox.worker.engine.saves import PartitionSave, sent
from partbox.worker.fork_safety import leave
from partbox.worker.runners.effects.effects import Effects, Undone
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop, begin
from partbox.worker.runners.loop_hosts import must_end, told_to_end
from partbox.worker.runners.walkers import Loop

T = TypeVar("T")
LOOK = 1.0  # seconds between two looks whether the loop has ended


class AsyncPsycopgEffects(Effects):
    """`transactional=True` on an `async def`."""

    lends: ClassVar[bool] = False
    conn: AsyncConnection[Any]  # type: ignore[assignment]

    def __init__(self, context: Context, session: WatchedConnection, loop: Loop) -> None:
        super().__init__(context, session, loop)
        self._task: asyncio.Task[Any] | None = None  # that runs a handler
        settings, name = context.settings, "partbox effects"
        self.conn = self.wait(
            lambda: connect_async(context.dsn(), lease=settings.lease, pooler=settings.pooler, name=name)
        )
        self._deadline = watched(self.conn, allowed(settings.lease))

    @property
    def is_intact(self) -> bool:
        return self.conn.info.transaction_status == TransactionStatus.INTRANS

    @contextmanager
    def transaction(self) -> Iterator[None]:
        block = self.conn.transaction()
        self.limited(block.__aenter__)
        try:
            yield
        except BaseException as error:
            self.limited(partial(block.__aexit__, type(error), error, error.__traceback__))
            raise
        self.limited(partial(block.__aexit__, None, None, None))

    def savepoint_async(self, handler: Handler) -> AbstractAsyncContextManager[tuple[Any, ...]]:
        """A savepoint around this handler, which an error rolls back; it gives what the handler gets."""
        return self._savepoint()

    def begin(self) -> None:
        self.limited(lambda: async_effects.begin_effects(self.conn, self._schema))

    def call(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        return self.wait(lambda: self._call(endpoint, event))

    def save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        return self.limited(lambda: self._save(me, saves))

    def interrupt(self) -> None:
        self.loop.soon(self._end_task)

    def close(self) -> None:
        with suppress(Exception):
            self.limited(self._close)
        self.conn.pgconn.finish()  # if the loop has ended

    def limited(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run statements of partbox in the loop, within the deadline."""
        try:
            with self._deadline:
                return self.wait(function)
        except OperationalError as error:
            if self._deadline.cut:
                raise self._deadline.lost() from error
            raise

    def wait(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it in the loop, and wait for its end. OperationalError if the loop has ended, or the worker is ending."""
        future = self.loop.submit(function)
        while True:
            try:
                return future.result(LOOK)
            except TimeoutError:
                if future.done():
                    raise
                if self.loop.ended:
                    future.cancel()
            except CancelledError as error:
                raise OperationalError("the event loop of handlers has ended, or the worker is ending") from error
            except PartboxError as error:  # the loop is closed; what handlers raise comes back as a value
                raise OperationalError(str(error)) from error

    async def _call(self, endpoint: Endpoint, event: DeliveredEvent) -> object:
        """Call the handler in a savepoint, rolled back unless the event is done; return what it returned or raised."""
        result: object = None
        self._task = task = asyncio.current_task()
        try:
            async with self.savepoint_async(endpoint.handler) as given:
                begun = partial(begin, lambda event: endpoint.call(event, *given))
                result = await EventLoop.call(begun, event, endpoint.handler.timeout)
                if self.context.engine.forked:
                    leave(result)
                if result is not None and not isinstance(result, Done):
                    raise Undone
        except Undone:
            return result
        except BaseException as error:
            if must_end(task):
                raise
            return result if isinstance(result, BaseException) else error
        finally:
            self._task = None
        return result

    @asynccontextmanager
    async def _savepoint(self) -> AsyncIterator[tuple[Any, ...]]:
        async with self.conn.transaction():
            yield (self.conn,)

    async def _save(self, me: UUID, saves: Sequence[PartitionSave]) -> tuple[set[int], float]:
        context = self.context
        await async_effects.end_effects(self.conn, self._schema, context.settings.lease / 2)
        return await async_effects.save(self.conn, self.session, self._schema, context.subscription, me, sent(saves))

    async def _close(self) -> None:
        await self.conn.close()

    def _end_task(self) -> None:
        if self._task is not None:
            told_to_end.add(self._task)
            self._task.cancel()
