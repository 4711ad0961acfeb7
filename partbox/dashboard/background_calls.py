"""Blocking calls to the database, off the event loop: in daemon threads, which do not delay the end of the process."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

import orjson
import psycopg

from partbox.dashboard.page_text import LONG, error_text
from partbox.errors import PartboxError

T = TypeVar("T")

FRESH = 1.5  # seconds


async def in_background(work: Callable[[], T]) -> T:
    """Return or raise the result of `work()`; a cancelled call is not waited for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # raised where it is awaited
            complete(future.set_exception, error)
        else:
            complete(future.set_result, result)

    def complete(set_outcome: Callable[[Any], None], outcome: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(lambda: None if future.done() else set_outcome(outcome))

    threading.Thread(target=run, name="page", daemon=True).start()
    return await future


class SingleFlight:
    """Asks the database once for an answer that many viewers want at the same time.

    Keeps answers by their question; lives in one event loop. Failures are not kept.
    """

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def ask(self, work: Callable[..., Any], *arguments: object) -> Any:
        """The result of `work(*arguments)` in the background, or that of a call under way or younger than FRESH."""
        question, now = (work, repr(arguments)), time.monotonic()
        self._answers = {
            key: cached for key, cached in self._answers.items() if now - cached[0] < FRESH or not cached[1].done()
        }
        if question not in self._answers:
            self._answers[question] = (now, asyncio.create_task(in_background(lambda: work(*arguments))))
        task = self._answers[question][1]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._answers.pop(question, None)
            raise

    def clear(self) -> None:
        """Drop all answers, after a change."""
        self._answers = {}


class ClientGone(PartboxError):
    """The client that ordered it has gone away."""


async def progress_lines(work: Callable[..., int], on_end: Callable[[], None]) -> AsyncIterator[bytes]:
    """Run one long order, `work(progress=…)`, in the background; `on_end()` is called at its end, failed or not.

    Lines of JSON: `{"done": …, "total": …}` after each chunk, `{"finished": …}` or `{"error": …}` at the end.
    """
    loop, client_gone = asyncio.get_running_loop(), threading.Event()
    lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def progress(done: int, total: int) -> None:
        if client_gone.is_set() or loop.is_closed():
            raise ClientGone(f"stopped after {done} of {total}")
        loop.call_soon_threadsafe(lines.put_nowait, {"done": done, "total": total})

    async def run() -> None:
        try:
            lines.put_nowait({"finished": await in_background(lambda: work(progress=progress))})
        except (PartboxError, psycopg.Error) as error:
            lines.put_nowait({"error": error_text(error, 2 * LONG)})
        finally:
            on_end()
            lines.put_nowait(None)

    task = asyncio.create_task(run())
    try:
        while (line := await lines.get()) is not None:
            yield orjson.dumps(line) + b"\n"
        await task
    finally:
        client_gone.set()
