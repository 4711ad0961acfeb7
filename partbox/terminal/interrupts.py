"""Ctrl-C for long runs: the first one ends a run in order, the second one at once."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from multiprocess import resource_tracker

from partbox.supervisor.flag import Flag

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, signals raise nothing: the first sets `asked`, any further one `at_once` too."""

    def __init__(self) -> None:
        self.asked = Flag()
        self.at_once = Flag()

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait_until(
        self,
        check: Callable[[], bool],
        seconds: float,
        given_up: Callable[[], bool],
        meanwhile: Callable[[], None],
        pause: float,
    ) -> bool:
        """Wait at most `seconds` for `check`, with `meanwhile` and a `pause` between two checks; False without success.

        `at_once` cuts a pause short.
        """
        end = time.monotonic() + seconds
        while not (done := check()) and time.monotonic() < end and not given_up():
            meanwhile()
            self.at_once.wait(pause)
        return done

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            self.at_once.set()
        self.asked.set()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hide Ctrl-C and a closing terminal from threads begun meanwhile, and from the processes that those begin.

    A terminal signals every process of a run, and one that is still starting would die with a traceback.
    """
    resource_tracker.ensure_running()  # it unblocks Ctrl-C in the thread that starts it, so not in one of those
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
