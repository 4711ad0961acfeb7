"""The recent past of a subscription: the points of its charts, and its news."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from partbox.dashboard.page_text import cut
from partbox.db.inspect.stats import Cluster, Instance
from partbox.operations.stats import News, Rates, changes
from partbox.terminal.roster import Face
from partbox.text.wording import counted

KEPT_POINTS = 121  # a second apart
GAP = 10.0  # seconds without a look after which the past is forgotten
KEPT_NEWS = 40


class ChartPoint(NamedTuple):
    """One moment: rates per second (None without a look before), the lag in seconds, the number of open events."""

    published: float | None
    delivered: float | None
    lag: float
    open: int


class History:
    """The points of the last two minutes."""

    def __init__(self) -> None:
        self._last: datetime | None = None
        self.points: deque[ChartPoint] = deque(maxlen=KEPT_POINTS)

    def add_point(self, at: datetime, cluster: Cluster, rates: Rates | None) -> ChartPoint:
        """Add and return a point. Dead events are not open."""
        if self._last is not None and (at - self._last).total_seconds() > GAP:
            self.points.clear()
        self._last = at
        parked = sum(cluster.waiting.values())
        known = rates if self.points else None
        published, delivered = (known.published, known.delivered) if known else (None, None)
        self.points.append(ChartPoint(published, delivered, cluster.unfinished_age or 0.0, cluster.pending + parked))
        return self.points[-1]


class PageNews(News):
    """The last happenings, found by comparing two looks at the subscription."""

    def __init__(self) -> None:
        super().__init__(KEPT_NEWS)
        self._last: Cluster | None = None
        self._labels: Mapping[UUID, Face] = {}

    def watch(self, cluster: Cluster, labels: Mapping[UUID, Face], at: datetime) -> None:
        """Compare with the last look; nothing is new at the first."""
        if self._last is not None:
            for kind, text in _differences(self._last, cluster, {**self._labels, **labels}):
                self.add(text, kind, at)
        self._last, self._labels = cluster, labels


def _differences(before: Cluster, after: Cluster, labels: Mapping[UUID, Face]) -> Iterator[tuple[str, str]]:
    """The `(kind, text)` of each difference."""
    found = changes(before, after)
    if before.paused != after.paused:
        yield "said", "the subscription was paused" if after.paused else "the subscription was resumed"
    for each in found.joined:
        yield "joined", f"{_name(each, labels)} joined"
    for each in found.leaving:
        yield "leaves", f"{_name(each, labels)} leaves"
    for each, left in found.gone:
        rest = f" with {counted(left, 'partition')} still its own" if left else ""
        yield "gone", f"{_name(each, labels)} is gone{rest}"
    for (old, new), number in Counter(found.claims.values()).items():
        if new is not None:
            source = f" from {labels[old].letter}" if old is not None and old in labels else ""
            target = labels[new].letter if new in labels else "a process that is gone"
            yield "moved", f"{counted(number, 'partition')} moved{source} to {target}"


def _name(instance: Instance, labels: Mapping[UUID, Face]) -> str:
    return f"process {labels[instance.instance_id].letter} (pid {instance.pid} on {cut(instance.node, 40)})"
