"""Waits in an event loop for work in a thread, to its end."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context


async def in_thread(work: Callable[[], None], cancelled: Callable[[], None] | None = None) -> None:
    """Run it in a thread of its own: those of the loop's executor may all be taken, or gone at the end of the program.

    Whoever cancels this has `cancelled` called, and waits all the same until the work has ended: what the work uses is
    there until then.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error = None
        try:
            work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=copy_context().run, args=(run,), name="partbox-embedded", daemon=True).start()
    cancelling: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError as error:
            cancelling = error
            if cancelled is not None:
                cancelled()
    if cancelling is not None:
        done.exception()
        raise cancelling
    done.result()
