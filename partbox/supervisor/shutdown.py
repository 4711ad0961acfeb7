"""The progress of a node's end."""

import time

GRACE = 2.0  # seconds beyond the drain timeout that processes have to end
ENDING = 2.0  # seconds that the loop has to end when all processes are killed


class Shutdown:
    """Asked for once. Without a lock: a signal's handler may ask, and may have interrupted the holder of any lock."""

    def __init__(self) -> None:
        self._kill_at: float | None = None
        self._killed_at: float | None = None

    @property
    def asked(self) -> bool:
        return self._kill_at is not None

    def ask(self, drain_timeout: float) -> None:
        """Let processes end by themselves for the drain timeout and a little more; a second call changes nothing."""
        if self._kill_at is None:
            self._kill_at = time.monotonic() + drain_timeout + GRACE

    def ask_at_once(self) -> None:
        """Let nothing end by itself any more."""
        self._kill_at = 0.0

    def note_killed(self) -> None:
        """All processes are killed by now."""
        self._killed_at = self._killed_at or time.monotonic()

    def kills(self, now: float) -> bool:
        """True if the processes that still run are to be killed."""
        return self._kill_at is not None and now >= self._kill_at

    @property
    def overdue(self) -> bool:
        """True if all is killed, and the loop has not ended since."""
        return self._killed_at is not None and time.monotonic() - self._killed_at > ENDING
