"""A rate limit for log lines: a burst of each kind, then a line from time to time that counts the others."""

import logging
import threading
import time
from collections.abc import Hashable

BURST = 10
# Seconds between two lines once the burst is used up.
SPAN = 10.0
# Most kinds that are remembered.
MOST = 1_000


class LogRateLimiter:
    """A rate limiter that keeps repeated lines of the same kind from flooding the log.

    It admits `BURST` lines of a kind, then one line every `SPAN` seconds. A kind that was quiet for long may burst
    again. Any thread may call. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By kind: the time of the last line, the lines left then, and the lines held back since the last admitted one.
        self._kinds: dict[Hashable, tuple[float, float, int]] = {}

    def line(self, kind: Hashable, level: int) -> tuple[int, str]:
        """Return the level at which to log a line of this kind, and a suffix that counts the suppressed lines
        before."""
        # The level is DEBUG if the line itself is held back.
        held = self.admit(kind, time.monotonic())
        if held is None:
            return logging.DEBUG, ""
        return level, f" (and {held} times more since this was last logged)" if held else ""

    def admit(self, kind: Hashable, now: float) -> int | None:
        """Return how many lines of this kind were suppressed since the last logged line, or None to suppress this line
        too."""
        with self._lock:
            seen, left, held = self._kinds.pop(kind, (now, float(BURST), 0))
            left = min(BURST, left + (now - seen) / SPAN)
            admitted = left >= 1
            self._kinds[kind] = (now, left - 1, 0) if admitted else (now, left, held + 1)
            if len(self._kinds) > MOST:
                del self._kinds[next(iter(self._kinds))]
            return held if admitted else None

    def clear(self) -> None:
        """Forget all log lines seen so far, so that every kind may burst again."""
        with self._lock:
            self._kinds.clear()
