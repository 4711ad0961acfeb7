"""A command that works step by step and may be told to stop between two of them."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from partbox.supervisor.flag import Flag


@contextmanager
def stoppable() -> Iterator[Flag]:
    """A flag that SIGINT or SIGTERM sets; a second one does what it always does."""
    flag = Flag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: FrameType | None) -> None:
        flag.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, handle)
    try:
        yield flag
    finally:
        restore()
