"""Wakes a loop that waits for processes to end."""

import os
from collections.abc import Sequence
from contextlib import suppress

from multiprocess import connection


class WakePipe:
    """`wake` takes no lock, so that a signal's handler may call it. In a forked process it does nothing: the pipe is
    the parent's."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._pid = os.getpid()

    def wake(self) -> None:
        """Any thread, also after `close`."""
        if self._pid != os.getpid():
            return
        with suppress(OSError):
            os.write(self._writer, b"x")

    def wait(self, sentinels: Sequence[int], timeout: float) -> bool:
        """Wait until one of the processes has ended, or `wake` was called, which is True."""
        if self._reader not in connection.wait([*sentinels, self._reader], timeout):
            return False
        os.read(self._reader, 4096)
        return True

    def close(self) -> None:
        reader, writer, self._writer = self._reader, self._writer, -1
        os.close(reader)
        os.close(writer)
