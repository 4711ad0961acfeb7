"""The backoff of restarts: the pause before a process is replaced, and the detection of crash loops."""

from collections import deque

FIRST_PAUSE = 0.1  # seconds until a replacement; the pause doubles with each death
LONGEST_PAUSE = 10.0  # seconds
CRASH_LOOP = 5  # deaths within `RECENT_SECONDS`
RECENT_SECONDS = 60.0  # seconds


class RestartBackoff:
    """The pauses before dead worker processes are replaced, and the detection of crash loops.

    One thread writes, any thread may read. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._death_times: deque[float] = deque(maxlen=1_000)
        self._backoff = FIRST_PAUSE
        self._looping_until = 0.0

    def note_death(self, now: float, lived: float) -> float:
        """Record that a worker process died after `lived` seconds. Return the seconds until its replacement."""
        self._death_times.append(now)
        if self.count_recent(now) >= CRASH_LOOP:
            self._looping_until = now + RECENT_SECONDS
        if lived > LONGEST_PAUSE:
            self._backoff = FIRST_PAUSE
        return self.next_pause()

    def next_pause(self) -> float:
        """Return the seconds to wait before the next try to start a process; each call doubles the next pause."""
        pause, self._backoff = self._backoff, min(LONGEST_PAUSE, self._backoff * 2)
        return pause

    def count_recent(self, now: float) -> int:
        """Return how many worker processes died within the last `RECENT_SECONDS`."""
        # Copy the deque, as another thread may append to it.
        return sum(at >= now - RECENT_SECONDS for at in list(self._death_times))

    def is_looping(self, now: float) -> bool:
        """Return True if processes died again and again (a crash loop) within the last `RECENT_SECONDS`."""
        return now < self._looping_until
