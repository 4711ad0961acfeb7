"""One event loop in a thread of its own, for `async def` handlers; it begins with the first of them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

PATIENCE = 5.0  # seconds for the loop to answer


class Loop:
    """Runs coroutines; errors of handlers come back as values."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = threading.Lock()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it; from any thread."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="partbox-async", daemon=True)
                self._thread.start()
        self._loop.call_soon_threadsafe(self._begin, coroutine)

    @staticmethod
    async def call(handler: Callable[[Any], Awaitable[Any]], event: Any, timeout: float | None) -> object:
        """What the handler returns or raises; a TimeoutError when it is cancelled after `timeout` seconds."""
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await handler(event)
        except BaseException as error:  # also SystemExit: a handler does not end the loop
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # whatever the handler makes of it: a stop is no failure of it
                raise asyncio.CancelledError from error
            if isinstance(error, TimeoutError) and limit.expired():
                return TimeoutError(f"the handler ran longer than its timeout of {timeout:g} s")
            return error

    def stop(self) -> bool:
        """Cancel what runs and end the loop; whether anything was cancelled. Handlers that resist are left behind."""
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            return False
        try:
            cancelled = asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result(PATIENCE)
        except TimeoutError:  # a handler blocks the loop
            return True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()
        return cancelled

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _cancel(self) -> bool:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)
        return bool(tasks)
