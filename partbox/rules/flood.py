"""Which of many alike lines are said: a burst of them, then one now and then that counts the others."""

import threading
from collections.abc import Hashable

BURST = 10
SPAN = 10.0  # seconds
MOST = 1_000  # kinds remembered


class Flood:
    """Lets `BURST` lines of a kind through in each `SPAN`. Any thread; times are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, tuple[float, int, int]] = {}  # when its span began, how many in it, how many held

    def admit(self, kind: Hashable, now: float) -> int | None:
        """How many of this kind were held back since the last that was let through; None: this one is held back too."""
        with self._lock:
            began, said, held = self._kinds.pop(kind, (now, 0, 0))
            if now - began >= SPAN:
                began, said = now, 0
            admitted = said < BURST
            self._kinds[kind] = (began, said + 1, 0) if admitted else (began, said, held + 1)
            if len(self._kinds) > MOST:
                del self._kinds[next(iter(self._kinds))]
            return held if admitted else None

    def clear(self) -> None:
        """Forget what was said."""
        with self._lock:
            self._kinds.clear()
