"""Signals and standard error of long runs at a terminal."""

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
    """A context that turns signals such as Ctrl-C into flags that the program checks.

    The first signal sets `stop_requested`, and a further one sets `immediate_stop` as well. A hangup never sets
    `immediate_stop`, because it arrives twice when a terminal is closed."""

    def __init__(self) -> None:
        self.stop_requested = SignalFlag()
        self.immediate_stop = SignalFlag()
        # True once a signal other than a hangup has arrived.
        self._was_asked = False

    def __enter__(self) -> "Interrupts":
        handled = [number for number in STOP_SIGNALS if number != HANGUP or not hangup_is_ignored()]
        self._before = {number: signal.signal(number, self._handle_signal) for number in handled}
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
        """Wait at most `seconds` until `check` returns True, and return its last result."""
        # Between two checks `meanwhile` is called, followed by a `pause`. The flag `immediate_stop` cuts the pause
        # short. If `given_up` returns True, the wait ends.
        end = time.monotonic() + seconds
        while not (done := check()) and time.monotonic() < end and not given_up():
            meanwhile()
            self.immediate_stop.wait(pause)
        return done

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self._was_asked and number != HANGUP:
            self.immediate_stop.set()
        self._was_asked |= number != HANGUP
        self.stop_requested.set()


@contextmanager
def redirect_stderr(log: Path) -> Iterator[None]:
    """Append the standard error of this process and its child processes to the file `log`."""
    # Only child processes that were started within the context are redirected.
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
