"""Writes log lines to an output whose reader may stall: a pipe, a socket, a stopped terminal.

A thread of its own writes. A caller waits until its line is written, so that the last lines of a dying process are not
lost; but not for long: once the reader has stalled, nobody waits any more. Some lines are kept then, further ones are
counted, and the count is written when the reader goes on.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

PATIENCE = 0.5  # seconds that a caller waits for its line, until the reader counts as stalled
KEPT = 256  # lines that wait for a stalled reader


class Outlet:
    """Lines on their way to a file descriptor; `note` makes the line about a number of lost ones."""

    def __init__(self, fd: int, note: Callable[[int], bytes]) -> None:
        self._fd = fd
        self._note = note
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        # Reentrant, as the lock of a logging handler: a signal's handler may log.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[bytes] = deque()
        self._started = self._stuck = False
        self._taken = self._written = self._lost = 0

    def write(self, line: bytes) -> None:
        """Write the line, or keep it for later, or count it. Any thread; waits for `PATIENCE` at most."""
        if self._pid != os.getpid():
            self._reset()  # forked: the thread is the parent's, and so are the lines that wait
        with self._changed:
            if len(self._waiting) >= KEPT:
                self._lost += 1
                return
            self._waiting.append(line)
            self._taken += 1
            mine = self._taken
            self._changed.notify_all()
            if not self._started:
                threading.Thread(target=self._run, name="partbox-log", daemon=True).start()
                self._started = True
            if not self._stuck:
                self._stuck = not self._changed.wait_for(lambda: self._written >= mine, PATIENCE)

    def flush(self) -> None:
        """Wait until every line is out, for `PATIENCE` at most."""
        with self._changed:
            if self._pid == os.getpid():
                self._changed.wait_for(lambda: self._written == self._taken and not self._lost, PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._lost)
                lost, line = self._lost, self._waiting[0] if self._waiting else b""
            self._put(line or self._note(lost))
            with self._changed:
                if line:
                    self._waiting.popleft()
                    self._written += 1
                else:
                    self._lost -= lost
                self._stuck = self._stuck and bool(self._waiting or self._lost)
                self._changed.notify_all()

    def _put(self, line: bytes) -> None:
        """Write the whole line, however long that takes; drop it if there is no reader."""
        with suppress(OSError):
            while line:
                try:
                    line = line[os.write(self._fd, line) :]
                except BlockingIOError:  # another process that shares it made it non-blocking
                    select.select((), (self._fd,), ())
