"""Rates and lags over the last seconds, and the lags of the whole run."""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from partbox.demo.recorder import Entry

WINDOW = 3.0  # seconds
NANO = 1e-9


class Meter:
    """Everything per second, lags in seconds from publish to handler; times are monotonic."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._recent: deque[Entry] = deque()
        self._published: deque[tuple[float, int]] = deque([(now, 0)])
        self._lags = array("f")

    def add(self, now: float, entries: Iterable[Entry], published: int) -> None:
        """These were delivered since the last time, so many are published in all."""
        for entry in entries:
            self._recent.append(entry)
            self._lags.append(max(0, entry.handled - entry.sent) * NANO)
        while self._recent and self._recent[0].handled * NANO < now - WINDOW:
            self._recent.popleft()
        self._published.append((now, published))
        while len(self._published) > 2 and self._published[1][0] < now - WINDOW:
            self._published.popleft()

    @property
    def published_rate(self) -> float:
        (first, before), (last, after) = self._published[0], self._published[-1]
        return (after - before) / (last - first) if last > first else 0.0

    def delivered_rate(self, now: float) -> float:
        return len(self._recent) / self._span(now)

    def rates(self, now: float) -> dict[int, float]:
        """Of each process, by its pid."""
        return {pid: count / self._span(now) for pid, count in Counter(entry.pid for entry in self._recent).items()}

    def recent_lags(self) -> tuple[float, float] | None:
        """The median and the 99th percentile; None if nothing was delivered."""
        return percentiles([(entry.handled - entry.sent) * NANO for entry in self._recent])

    def all_lags(self) -> tuple[float, float] | None:
        return percentiles(self._lags)

    def _span(self, now: float) -> float:
        return min(WINDOW, max(0.1, now - self._began))


def percentiles(lags: Sequence[float]) -> tuple[float, float] | None:
    """The median and the 99th percentile; None of nothing."""
    if not lags:
        return None
    ordered = sorted(lags)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
