"""One long order, with a line of progress for each chunk."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson
import psycopg

from partbox.dashboard.background_calls import in_background
from partbox.dashboard.page_text import LONG, error_text
from partbox.errors import PartboxError
from partbox.operations.dead import Progress


class Stopped(PartboxError):
    """The client that ordered it has gone away."""


class Bulk:
    """`work(progress)` runs in the background; `after()` is called at its end, failed or not."""

    def __init__(self, work: Callable[[Progress], int], after: Callable[[], None]) -> None:
        self._work = work
        self._after = after
        self._gone = threading.Event()
        self._said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def lines(self) -> AsyncIterator[bytes]:
        """`{"done": …, "total": …}` after each chunk, `{"finished": …}` or `{"error": …}` at the end."""
        task = asyncio.create_task(self._run())
        try:
            while (said := await self._said.get()) is not None:
                yield orjson.dumps(said) + b"\n"
            await task
        finally:
            self._gone.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()

        def progress(done: int, total: int) -> None:
            if self._gone.is_set() or loop.is_closed():
                raise Stopped(f"stopped after {done} of {total}")
            loop.call_soon_threadsafe(self._said.put_nowait, {"done": done, "total": total})

        try:
            done = await in_background(lambda: self._work(progress))
            self._said.put_nowait({"finished": done})
        except (PartboxError, psycopg.Error) as error:
            self._said.put_nowait({"error": error_text(error, 2 * LONG)})
        finally:
            self._after()
            self._said.put_nowait(None)
