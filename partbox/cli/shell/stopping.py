"""Signals that stop a command: between two steps, or anywhere."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from partbox.supervisor.signals import SignalFlag

AGAIN = 0.05  # seconds until a signal that Python has dropped comes again


@contextmanager
def stoppable() -> Iterator[SignalFlag]:
    """A flag that SIGINT or SIGTERM sets; a second signal has its usual effect."""
    flag = SignalFlag()
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
    """SIGINT or SIGTERM ends the block anywhere, as if it were done; cleanup is not interrupted.

    For commands that only read: nothing is left half done.
    """
    with suppress(KeyboardInterrupt), interruptible(signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """The first of these signals raises KeyboardInterrupt in the block; later ones are ignored, so that the undoing is
    not interrupted. One that is ignored already (`nohup`) stays so.

    Python drops an error that meets a callback of its own, such as those of an import. Then the signal comes again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    heard = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    told, again = sys.unraisablehook, None

    def end(number: int, _: FrameType | None) -> NoReturn:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        raise _Met(number)

    def come_again(dropped: "sys.UnraisableHookArgs") -> None:
        nonlocal again
        if not isinstance(dropped.exc_value, _Met):
            told(dropped)
            return
        for each in heard:
            signal.signal(each, end)
        again = threading.Timer(AGAIN, os.kill, (os.getpid(), dropped.exc_value.number))
        again.start()

    sys.unraisablehook = come_again
    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        if again is not None:
            again.cancel()
        for number in heard:
            signal.signal(number, before[number])
        sys.unraisablehook = told


class _Met(KeyboardInterrupt):
    """A signal that arrived during the block."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
