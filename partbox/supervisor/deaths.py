"""Deaths of this node's processes: the pause before a replacement, and crash loops."""

from collections import deque

BACKOFF = (0.1, 10.0)  # seconds until a replacement: the first, and the longest
CRASHES = (5, 60.0)  # so many deaths within so many seconds are a crash loop


class Deaths:
    """One thread notes, any thread asks. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=1_000)
        self._backoff = BACKOFF[0]
        self._looping_until = 0.0

    def note(self, now: float, lived: float) -> float:
        """Note that a process has died after living `lived` seconds; the seconds to wait before its replacement."""
        self._at.append(now)
        if self.lately(now) >= CRASHES[0]:
            self._looping_until = now + CRASHES[1]
        if lived > BACKOFF[1]:
            self._backoff = BACKOFF[0]
        return self.pause()

    def pause(self) -> float:
        """The seconds to wait before the next try to start one."""
        pause, self._backoff = self._backoff, min(BACKOFF[1], self._backoff * 2)
        return pause

    def lately(self, now: float) -> int:
        """The number of deaths within the time that makes a crash loop."""
        return sum(at >= now - CRASHES[1] for at in list(self._at))

    def looping(self, now: float) -> bool:
        """True if it is a crash loop, or was lately."""
        return now < self._looping_until
