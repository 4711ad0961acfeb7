"""Runs blocking calls to the database in daemon threads, which do not delay the end of the process."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Return or raise the result of `work()`; a cancelled call is not waited for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # raised where it is awaited
            told(future.set_exception, error)
        else:
            told(future.set_result, result)

    def told(tell: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(lambda: None if future.done() else tell(what))

    threading.Thread(target=run, name="page", daemon=True).start()
    return await future
