"""Blocking database calls outside of the event loop, in daemon threads, which do not delay the end of the process."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

import orjson
import psycopg

from partbox.dashboard.page_text import LONG, format_error
from partbox.errors import PartboxError

T = TypeVar("T")

FRESH = 1.5  # seconds


async def run_in_background(work: Callable[[], T]) -> T:
    """Run `work()` in a thread, and return its result or raise its error."""
    # A caller that is cancelled does not wait for the thread.
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        # The error is raised where the call is awaited.
        except BaseException as error:
            complete(future.set_exception, error)
        else:
            complete(future.set_result, result)

    def complete(set_outcome: Callable[[Any], None], outcome: object) -> None:
        # The loop is closed, so nobody waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else set_outcome(outcome))

    threading.Thread(target=run, name="page", daemon=True).start()
    return await future


class SingleFlight:
    """A short-lived cache, by which many viewers of a page share one query of the database.

    A cache belongs to one event loop."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def share_call(self, work: Callable[..., Any], *arguments: object) -> Any:
        """Return the result of `work(*arguments)`, shared with equal calls of the last moments."""
        # A call is shared while it runs, and until FRESH seconds after its start.
        # Failures are not kept.
        question, now = (work, repr(arguments)), time.monotonic()
        self._answers = {
            key: cached for key, cached in self._answers.items() if now - cached[0] < FRESH or not cached[1].done()
        }
        if question not in self._answers:
            self._answers[question] = (now, asyncio.create_task(run_in_background(lambda: work(*arguments))))
        task = self._answers[question][1]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._answers.pop(question, None)
            raise

    def forget_answers(self) -> None:
        self._answers = {}


class ClientGone(PartboxError):
    """Error: a long action was ended because the client that ordered it has disconnected."""


async def stream_progress(work: Callable[..., int], on_end: Callable[[], None]) -> AsyncIterator[bytes]:
    """Run `work(progress=…)` in the background, and yield its progress and result as lines of JSON."""
    # The lines are `{"done": …, "total": …}` after each chunk, and `{"finished": …}` or `{"error": …}` at the end.
    # `on_end()` is called in both cases.
    loop, client_gone = asyncio.get_running_loop(), threading.Event()
    lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    def progress(done: int, total: int) -> None:
        if client_gone.is_set() or loop.is_closed():
            raise ClientGone(f"stopped after {done} of {total}")
        loop.call_soon_threadsafe(lines.put_nowait, {"done": done, "total": total})

    async def run() -> None:
        try:
            lines.put_nowait({"finished": await run_in_background(lambda: work(progress=progress))})
        except (PartboxError, psycopg.Error) as error:
            lines.put_nowait({"error": format_error(error, 2 * LONG)})
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
