"""Backoff of the restarts of a node's processes: the pause before a replacement, and crash loops."""

from collections import deque

FIRST_PAUSE = 0.1  # seconds until a replacement; the pause doubles with each death
LONGEST_PAUSE = 10.0
CRASH_LOOP = 5  # deaths within RECENT
RECENT_SECONDS = 60.0  # seconds


class RestartBackoff:
    """One thread notes, any thread asks. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._death_times: deque[float] = deque(maxlen=1_000)
        self._backoff = FIRST_PAUSE
        self._looping_until = 0.0

    def note_death(self, now: float, lived: float) -> float:
        """Note that a process has died after living `lived` seconds; the seconds to wait before its replacement."""
        self._death_times.append(now)
        if self.count_recent(now) >= CRASH_LOOP:
            self._looping_until = now + RECENT_SECONDS
        if lived > LONGEST_PAUSE:
            self._backoff = FIRST_PAUSE
        return self.next_pause()

    def next_pause(self) -> float:
        """The seconds to wait before the next try to start one."""
        pause, self._backoff = self._backoff, min(LONGEST_PAUSE, self._backoff * 2)
        return pause

    def count_recent(self, now: float) -> int:
        """The number of deaths within the time that makes a crash loop."""
        return sum(at >= now - RECENT_SECONDS for at in list(self._death_times))

    def is_looping(self, now: float) -> bool:
        """True if it is a crash loop, or was lately."""
        return now < self._looping_until
