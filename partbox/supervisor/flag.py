"""A flag that a signal handler may set.

Not a `threading.Event`: its lock is not reentrant, and the handler may interrupt the very wait of the main thread that
holds it. Then the two wait for each other for ever.
"""

import time

LOOK = 0.02  # seconds


class Flag:
    """Set once, by anybody, at any time."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; True if it is set."""
        until = time.monotonic() + timeout
        while not self._set and (left := until - time.monotonic()) > 0:
            time.sleep(min(LOOK, left))
        return self._set
