"""Rates and lags over the last seconds, and the lags of the whole run."""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from partbox.demo.recorder import RecordedDelivery

WINDOW = 3.0  # seconds


class Throughput(NamedTuple):
    """Events so far; of the last seconds their rates per second, `rates` by pid, and `lags` as below."""

    published: int
    published_rate: float
    delivered: int
    delivered_rate: float
    rates: dict[int, float]
    lags: tuple[float, float] | None

    @property
    def pending(self) -> int:
        """Published and not delivered yet; a delivery may be noted before its publisher has counted it."""
        return max(0, self.published - self.delivered)


class DeliveryMeter:
    """Times are monotonic; lags are the median and the 99th percentile in seconds, None if nothing was delivered."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._recent: deque[RecordedDelivery] = deque()
        self._published: deque[tuple[float, int]] = deque([(now, 0)])
        self._lags = array("f")

    def read(self, now: float, deliveries: Iterable[RecordedDelivery], published: int) -> Throughput:
        """Add what was delivered since the last reading; `published` counts all events so far."""
        for each in deliveries:
            self._recent.append(each)
            self._lags.append(each.lag)
        while self._recent and self._recent[0].handled / 1e9 < now - WINDOW:
            self._recent.popleft()
        self._published.append((now, published))
        while len(self._published) > 2 and self._published[1][0] < now - WINDOW:
            self._published.popleft()
        first, before = self._published[0]
        span = min(WINDOW, max(0.1, now - self._began))
        return Throughput(
            published=published,
            published_rate=(published - before) / (now - first) if now > first else 0.0,
            delivered=len(self._lags),
            delivered_rate=len(self._recent) / span,
            rates={pid: count / span for pid, count in Counter(each.pid for each in self._recent).items()},
            lags=_percentiles([each.lag for each in self._recent]),
        )

    def lags(self) -> tuple[float, float] | None:
        """Those of the whole run."""
        return _percentiles(self._lags)


def _percentiles(lags: Sequence[float]) -> tuple[float, float] | None:
    if not lags:
        return None
    ordered = sorted(lags)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
