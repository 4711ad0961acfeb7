"""Long runs at a terminal: Ctrl-C ends one in order, and then at once; errors go to a file meanwhile."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from partbox.platform import HANGUP, STOP_SIGNALS
from partbox.supervisor.signals import SignalFlag, hangup_is_ignored


class Interrupts:
    """While entered, signals raise nothing: the first sets `asked`, any further one `at_once` too.

    A hangup comes twice when a terminal is closed, from the kernel and from the shell, and never means at once.
    """

    def __init__(self) -> None:
        self.asked = SignalFlag()
        self.at_once = SignalFlag()
        self._was_asked = False  # by another signal than a hangup

    def __enter__(self) -> "Interrupts":
        handled = [number for number in STOP_SIGNALS if number != HANGUP or not hangup_is_ignored()]
        self._before = {number: signal.signal(number, self._handle) for number in handled}
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
        if self._was_asked and number != HANGUP:
            self.at_once.set()
        self._was_asked |= number != HANGUP
        self.asked.set()


@contextmanager
def redirect_stderr(log: Path) -> Iterator[None]:
    """Append the errors of this process, and of those that it starts meanwhile, to a file."""
    sys.stderr.flush()
    saved_fd = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved_fd, 2)
        os.close(saved_fd)
