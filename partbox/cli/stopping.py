"""Commands that may be told to stop: between two steps, or wherever they are."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

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


@contextmanager
def until_stopped() -> Iterator[None]:
    """SIGINT or SIGTERM ends the block wherever it is, as if it had come to its end; clearing up is not interrupted.

    For those that only look: nothing is left half done.
    """
    with suppress(KeyboardInterrupt), interruptible(signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """The first of these signals is a KeyboardInterrupt wherever it meets the block; others are ignored after it, so
    that what is undone because of it is not interrupted. One that is ignored already (`nohup`) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def end(number: int, _: FrameType | None) -> NoReturn:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])
