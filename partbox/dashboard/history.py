"""The past of a subscription: the points of its charts, its news, and its lags of one day."""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import psycopg

from partbox.dashboard.page_text import cut_text
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.db.inspect.stats import Cluster, Instance, Overview
from partbox.errors import PartboxError
from partbox.operations.stats import NewsFeed, Rates, compare_clusters
from partbox.terminal.roster import ProcessBadge
from partbox.text.wording import format_count

# Points are a second apart.
KEPT_POINTS = 121
# Seconds without an overview after which the past is dropped.
GAP = 10.0
KEPT_NEWS = 40

# Seconds of a bar, and bars of a day.
STEP = 300.0
BARS = 288
# Seconds between two samples while nobody watches.
SAMPLE_INTERVAL = 60.0


class ChartPoint(NamedTuple):
    """The values of a subscription's charts at one moment."""

    # Rates are per second, and `lag` is in seconds.

    published: float | None
    delivered: float | None
    lag: float
    open: int


class History:
    """The chart points of a subscription over the last two minutes."""

    def __init__(self) -> None:
        self._last_at: datetime | None = None
        self.points: deque[ChartPoint] = deque(maxlen=KEPT_POINTS)

    def add_point(self, at: datetime, cluster: Cluster, rates: Rates | None) -> ChartPoint:
        """Add the current rates, lag and number of open events to a subscription's charts, and return the new point."""
        # Dead events do not count as open. The first point has no rates.
        if self._last_at is not None and (at - self._last_at).total_seconds() > GAP:
            self.points.clear()
        self._last_at = at
        parked = sum(cluster.waiting.values())
        known = rates if self.points else None
        published, delivered = (known.published, known.delivered) if known else (None, None)
        self.points.append(ChartPoint(published, delivered, cluster.unfinished_age or 0.0, cluster.pending + parked))
        return self.points[-1]


class DayOfLags:
    """The longest lag of each subscription in every five minutes of the last day.

    A lag is the age of the oldest unfinished event. The newest lag of each subscription is recorded, too. Any thread
    may call. After `start_sampling`, samples are taken even while nobody watches."""

    def __init__(self, interval: float = SAMPLE_INTERVAL) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._bars: dict[str, deque[tuple[int, float]]] = {}
        self._newest_lags: dict[str, float] = {}
        self._last_bar = 0
        self._sampler: threading.Thread | None = None

    def start_sampling(self, overview_cache: CachedOverview) -> None:
        """Start a thread that records the lags of all subscriptions once a minute, unless it runs already."""
        # The thread runs until the cache is closed.
        if self._sampler is None:
            self._sampler = threading.Thread(
                target=self._sample_repeatedly, args=[overview_cache], name="lags", daemon=True
            )
            self._sampler.start()

    def record_lags(self, overview: Overview) -> None:
        """Record the current lag of every subscription, and forget subscriptions that no longer exist."""
        bar = int(overview.at.timestamp() // STEP)
        with self._lock:
            self._newest_lags = {each.subscription: each.unfinished_age or 0.0 for each in overview.clusters}
            self._last_bar = bar
            for name, lag in self._newest_lags.items():
                bars = self._bars.setdefault(name, deque(maxlen=BARS))
                before = bars.pop()[1] if bars and bars[-1][0] >= bar else 0.0
                bars.append((bar, max(lag, before)))
            for gone in self._bars.keys() - self._newest_lags.keys():
                del self._bars[gone]

    def list_worst(self, most: int) -> list[tuple[str, float, list[float | None]]]:
        """Return the `most` subscriptions with the longest lags, the worst first."""
        # Each is a tuple `(name, newest lag, lags)`.
        # Lags are in seconds. `lags` has the longest lag in every five minutes of a day until the last sample, and None
        # where no sample was taken.
        with self._lock:
            known = {name: dict(bars) for name, bars in self._bars.items()}
            now, last = dict(self._newest_lags), self._last_bar
        names = sorted(known, key=lambda name: (-now[name], -max(known[name].values()), name))[:most]
        return [
            (name, now[name], [known[name].get(last - bars_ago) for bars_ago in reversed(range(BARS))])
            for name in names
        ]

    def _sample_repeatedly(self, overview_cache: CachedOverview) -> None:
        while True:
            with suppress(psycopg.Error, PartboxError):
                self.record_lags(overview_cache.read_overview())
            if overview_cache.closed.wait(self._interval):
                return


class PageNews(NewsFeed):
    """The dashboard's list of recent changes of a subscription, such as workers that joined.

    The changes are found by comparing two overviews."""

    def __init__(self) -> None:
        super().__init__(KEPT_NEWS)
        self._last_cluster: Cluster | None = None
        self._labels: Mapping[UUID, ProcessBadge] = {}

    def note_changes(self, cluster: Cluster, labels: Mapping[UUID, ProcessBadge], at: datetime) -> None:
        """Add a news item for each change of a subscription since the last call. The first call adds none."""
        if self._last_cluster is not None:
            for kind, text in _find_differences(self._last_cluster, cluster, {**self._labels, **labels}):
                self.add_item(text, kind, at)
        self._last_cluster, self._labels = cluster, labels


def _find_differences(
    before: Cluster, after: Cluster, labels: Mapping[UUID, ProcessBadge]
) -> Iterator[tuple[str, str]]:
    # Each change is a piece of news `(kind, text)`.
    found = compare_clusters(before, after)
    if before.paused != after.paused:
        yield "said", "the subscription was paused" if after.paused else "the subscription was resumed"
    for each in found.joined:
        yield "joined", f"{_format_process(each, labels)} joined"
    for each in found.leaving:
        yield "leaves", f"{_format_process(each, labels)} leaves"
    for each, left in found.gone:
        rest = f" with {format_count(left, 'partition')} still its own" if left else ""
        yield "gone", f"{_format_process(each, labels)} is gone{rest}"
    for (old, new), number in Counter(found.owner_changes.values()).items():
        if new is not None:
            source = f" from {labels[old].letter}" if old is not None and old in labels else ""
            target = labels[new].letter if new in labels else "a process that is gone"
            yield "moved", f"{format_count(number, 'partition')} moved{source} to {target}"


def _format_process(instance: Instance, labels: Mapping[UUID, ProcessBadge]) -> str:
    return f"process {labels[instance.instance_id].letter} (pid {instance.pid} on {cut_text(instance.node, 40)})"
