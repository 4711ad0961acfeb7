"""Rates and lags over the last seconds, and the lags of the whole run."""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence

from partbox.demo.recorder import RecordedDelivery

WINDOW = 3.0  # seconds
NANO = 1e-9


class DeliveryMeter:
    """Everything per second, lags in seconds from publish to handler; times are monotonic."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._recent: deque[RecordedDelivery] = deque()
        self._published: deque[tuple[float, int]] = deque([(now, 0)])
        self._lags = array("f")

    def add(self, now: float, deliveries: Iterable[RecordedDelivery], published: int) -> None:
        """Add what was delivered since the last time, and the number of events published so far."""
        for each in deliveries:
            self._recent.append(each)
            self._lags.append(max(0, each.handled - each.sent) * NANO)
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
        """The rate of each process, by its pid."""
        return {pid: count / self._span(now) for pid, count in Counter(each.pid for each in self._recent).items()}

    def recent_lags(self) -> tuple[float, float] | None:
        """The median and the 99th percentile of the last seconds; None if nothing was delivered."""
        return _percentiles([(each.handled - each.sent) * NANO for each in self._recent])

    def all_lags(self) -> tuple[float, float] | None:
        """The same of the whole run."""
        return _percentiles(self._lags)

    def _span(self, now: float) -> float:
        return min(WINDOW, max(0.1, now - self._began))


def _percentiles(lags: Sequence[float]) -> tuple[float, float] | None:
    if not lags:
        return None
    ordered = sorted(lags)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
