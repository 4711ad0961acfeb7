"""When the demo is to end: one Ctrl-C ends it in order, a second one at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from multiprocess import resource_tracker

from partbox.supervisor.flag import Flag

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """While entered, signals raise nothing: the first sets `asked`, any further one `at_once` too."""

    def __init__(self) -> None:
        self.asked = Flag()
        self.at_once = Flag()

    def __enter__(self) -> "Ending":
        self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked.is_set():
            self.at_once.set()
        self.asked.set()


@contextmanager
def deaf() -> Iterator[None]:
    """Threads begun meanwhile, and processes begun by those, do not hear Ctrl-C or a terminal that closes.

    A terminal sends them to every process of the demo, and one that is still starting would die with a traceback.
    """
    resource_tracker.ensure_running()  # whoever starts it hears Ctrl-C again, so not one of those threads
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
