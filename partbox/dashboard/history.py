"""The data of the charts: the last two minutes of a subscription."""

from collections import deque
from datetime import datetime
from typing import NamedTuple

from partbox.db.inspect.stats import Cluster
from partbox.operations.stats.rates import Rates

KEPT = 121  # points, a second apart
GAP = 10.0  # seconds without a look after which the past is forgotten


class ChartPoint(NamedTuple):
    """One moment: rates per second (None without a look before), the lag in seconds, the number of open events."""

    published: float | None
    delivered: float | None
    lag: float
    open: int


class History:
    """The last points."""

    def __init__(self) -> None:
        self._last: datetime | None = None
        self.points: deque[ChartPoint] = deque(maxlen=KEPT)

    def add(self, at: datetime, cluster: Cluster, rates: Rates | None) -> ChartPoint:
        """Add and return a point. Dead events are not open."""
        if self._last is not None and (at - self._last).total_seconds() > GAP:
            self.points.clear()
        self._last = at
        parked = sum(cluster.waiting.values())
        known = rates if self.points else None
        published, delivered = (known.published, known.delivered) if known else (None, None)
        self.points.append(ChartPoint(published, delivered, cluster.unfinished_age or 0.0, cluster.pending + parked))
        return self.points[-1]
