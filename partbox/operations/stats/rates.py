"""Rates of a subscription, from two overviews of it."""

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from partbox.db.inspect.stats import Cluster, Overview, PartitionStats

WINDOW: Final = 5.0  # seconds over which rates are averaged


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second: records that were published, and that the subscription has delivered; both estimates."""

    published: float
    delivered: float


class _Point(NamedTuple):
    at: datetime
    published: float
    delivered: float


class Pace:
    """Rates of all subscriptions over the last seconds; feed it every overview."""

    def __init__(self) -> None:
        self._last: Overview | None = None
        self._points: dict[str, deque[_Point]] = {}

    def add(self, overview: Overview) -> None:
        """Take in an overview; one that is not newer than the last is ignored."""
        last = self._last
        if last is not None and overview.at <= last.at:
            return
        before = {each.subscription: each for each in last.clusters} if last else {}
        self._last = overview
        self._points = {each.subscription: self._extended(overview, each, before, last) for each in overview.clusters}

    def rates(self, subscription: str) -> Rates | None:
        """The rates; None before the second overview."""
        points = self._points.get(subscription)
        if points is None or len(points) < 2:
            return None
        first, last = points[0], points[-1]
        seconds = (last.at - first.at).total_seconds()
        published, delivered = last.published - first.published, last.delivered - first.delivered
        return Rates(published / seconds, max(0.0, delivered) / seconds)

    def _extended(
        self, overview: Overview, cluster: Cluster, before: dict[str, Cluster], last: Overview | None
    ) -> deque[_Point]:
        points = self._points.get(cluster.subscription)
        known = before.get(cluster.subscription)
        if last is None or known is None or points is None:
            return deque([_Point(overview.at, 0.0, 0.0)])
        drawn = max(0, overview.newest_id - last.newest_id)
        published, done = points[-1].published + drawn, points[-1].delivered + delivered(known, cluster, drawn)
        points.append(_Point(overview.at, published, done))
        while len(points) > 2 and (overview.at - points[0].at).total_seconds() > WINDOW:
            points.popleft()
        return points


def delivered(before: Cluster, after: Cluster, drawn: int) -> float:
    """About how many records were finished between two looks, while `drawn` ids were drawn; below 0 after a replay.

    Where both counts of a partition are exact: what was published less what more is pending. Where one is estimated it
    is far off by more than was delivered; there the cursor's way counts, as densely records as lie above it now.
    """
    parked = sum(after.parked.values()) - sum(before.parked.values())
    if before.unlisted or after.unlisted:
        return drawn - (after.pending - before.pending) - parked
    pairs = list(zip(before.partitions, after.partitions, strict=False))
    deep = [(old, new) for old, new in pairs if not (old.exact and new.exact)]
    counted = sum(new.pending - old.pending for old, new in pairs if old.exact and new.exact)
    elsewhere = min(1.0, sum(_fill(old, new) for old, new in deep))
    travelled = sum((new.last_id - old.last_id) * _fill(old, new) for old, new in deep)
    return travelled + drawn * (1.0 - elsewhere) - counted - parked


def _fill(old: PartitionStats, new: PartitionStats) -> float:
    return new.fill or old.fill or 0.0
