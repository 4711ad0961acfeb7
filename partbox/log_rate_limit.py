"""Rate limit for log lines of one kind: a burst of them, then one now and then that counts the others."""

import logging
import threading
import time
from collections.abc import Hashable

BURST = 10
SPAN = 10.0  # seconds between two lines, once the burst is used up
MOST = 1_000  # kinds remembered


class LogRateLimiter:
    """Lets `BURST` lines of a kind through, then one each `SPAN`; a kind that was quiet for long may burst again. Any
    thread; times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, tuple[float, float, int]] = {}  # seen last, lines left then, held back since one

    def line(self, kind: Hashable, level: int) -> tuple[int, str]:
        """The level of a line of this kind now, DEBUG if it is held back, and its end, which counts those that were."""
        held = self.admit(kind, time.monotonic())
        if held is None:
            return logging.DEBUG, ""
        return level, f" (and {held} times more since this was last said)" if held else ""

    def admit(self, kind: Hashable, now: float) -> int | None:
        """The number of this kind held back since the last that was let through; None: hold this one back too."""
        with self._lock:
            seen, left, held = self._kinds.pop(kind, (now, float(BURST), 0))
            left = min(BURST, left + (now - seen) / SPAN)
            admitted = left >= 1
            self._kinds[kind] = (now, left - 1, 0) if admitted else (now, left, held + 1)
            if len(self._kinds) > MOST:
                del self._kinds[next(iter(self._kinds))]
            return held if admitted else None

    def clear(self) -> None:
        """Forget all kinds."""
        with self._lock:
            self._kinds.clear()
