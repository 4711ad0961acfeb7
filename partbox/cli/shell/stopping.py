"""Signals that end a command, either between two steps or anywhere."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from partbox.supervisor.signals import SignalFlag

RESEND_DELAY = 0.05  # seconds until a signal that Python has dropped is sent again


@contextmanager
def stoppable() -> Iterator[SignalFlag]:
    """Turn the first SIGINT or SIGTERM within the context into a flag that can be polled."""
    # The flag is yielded. A second signal has its usual effect.
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
    """End the block of this context quietly at SIGINT or SIGTERM, as if it had finished."""
    # The block ends wherever it is. Cleanup is not interrupted. Only for commands that read, so that no change is left
    # half done.
    with suppress(KeyboardInterrupt), interruptible(signal.SIGINT, signal.SIGTERM):
        yield


@contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[None]:
    """Raise KeyboardInterrupt in the block of this context when one of the given signals arrives."""
    # A signal that was ignored before stays ignored, as under nohup. Outside the main thread nothing is changed. Python
    # drops an exception that is raised within a callback of its own, such as a weakref callback during an import. The
    # signal is then sent again.
    # Only the first signal raises. Later ones are ignored, so that they do not interrupt cleanup.
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
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
