"""Calls of the transactor's thread into the event loop of async handlers."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, TypeVar

from psycopg import OperationalError

from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop, begin
from partbox.worker.runners.loop_hosts import told_to_end

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

    async def handle(self, endpoint: Endpoint, event: DeliveredEvent, given: tuple[Any, ...]) -> object:
        """Call the handler; return what it returned or raised. CancelledError if it was interrupted."""
        self._task = asyncio.current_task()
        try:
            begun = partial(begin, lambda event: endpoint.call(event, *given))
            return await EventLoop.call(begun, event, endpoint.handler.timeout)
        finally:
            self._task = None

    def interrupt(self) -> None:
        """Cancel the handler that runs, for good. Any thread."""
        self._loop.soon(self._end_task)

    def _end_task(self) -> None:
        if self._task is not None:
            told_to_end.add(self._task)
            self._task.cancel()
