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

RESEND_DELAY = 0.05  # seconds until a signal that Python has dropped comes again


@contextmanager
def stoppable() -> Iterator[SignalFlag]:
    """A flag that SIGINT or SIGTERM sets; a second signal has its usual effect."""
    flag = SignalFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return
    previous_handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _: FrameType | None) -> None:
        flag.set()
        restore()

    def restore() -> None:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)

    for number in previous_handlers:
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
    previous_handlers = {number: signal.getsignal(number) for number in numbers}
    handled = [number for number, handler in previous_handlers.items() if handler is not signal.SIG_IGN]

    previous_hook, retry_timer = sys.unraisablehook, None

    def end(number: int, _: FrameType | None) -> NoReturn:
        for each in handled:
            signal.signal(each, signal.SIG_IGN)
        raise _StopSignal(number)

    def resend_dropped(dropped: "sys.UnraisableHookArgs") -> None:
        nonlocal retry_timer
        if not isinstance(dropped.exc_value, _StopSignal):
            previous_hook(dropped)
            return
        for each in handled:
            signal.signal(each, end)
        retry_timer = threading.Timer(RESEND_DELAY, os.kill, (os.getpid(), dropped.exc_value.number))
        retry_timer.start()

    sys.unraisablehook = resend_dropped
    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        if retry_timer is not None:
            retry_timer.cancel()
        for number in handled:
            signal.signal(number, previous_handlers[number])
        sys.unraisablehook = previous_hook


class _StopSignal(KeyboardInterrupt):
    """A signal that arrived during the block."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
