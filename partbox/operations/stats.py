"""Numbers of an outbox: counts, partitions, processes and pages of records; and rates and news computed from them."""

from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

from partbox.db.inspect import stats
from partbox.db.inspect.stats import STATES, Cluster, Instance, Overview, PartitionStats, RecordStatus
from partbox.errors import PartboxError
from partbox.operations import arguments
from partbox.operations.session import OperatorCommands

LARGEST_PAGE = 1_000  # records
FAILED_STATES = ("retrying", "dead")


class Stats(OperatorCommands):
    """Commands that read the statistics of an outbox, each by a single SQL statement.

    `overview`, `cluster`, `partitions` and `records` count up to 10,000 pending records of a partition exactly and
    estimate larger numbers. Parked records are counted, completed ones are estimated. A page holds at most 1,000
    records in id order, without payloads. The next page begins `after` the last id of the previous page. Raise
    PartboxError with a remedy, also for an unknown subscription, and psycopg.Error if the database is unreachable."""

    _group_name = "stats"

    def overview(self) -> Overview:
        """Return record counts, worker processes and partitions of all subscriptions, read at one moment."""
        with self._open_session() as conn:
            return stats.read_overview(conn, self._schema)

    def cluster(self, subscription: str = "default") -> Cluster:
        """Return the record counts, worker processes and 256 partitions of one subscription."""
        arguments.check_text("subscription", subscription)
        with self._open_session() as conn:
            return stats.read_cluster(conn, self._schema, subscription)

    def partitions(self, subscription: str = "default") -> tuple[PartitionStats, ...]:
        """Return the 256 partitions of a subscription, each with its owner and epoch, the number of its pending
        records, and the age of the oldest one."""
        return self.cluster(subscription).partitions

    def records(self, subscription: str = "default") -> dict[str, int]:
        """Count the records of a subscription by status: pending, completed, or parked (set aside from normal reading)
        in one of several states."""
        return self.cluster(subscription).records

    def pending(self, subscription: str = "default", limit: int = 100, after: int | None = None) -> list[RecordStatus]:
        """Return a page of the records that a subscription has not consumed yet."""
        # The statement reads at most a page of each partition, and the records that committed late.
        return self._load_page("page_pending", subscription, limit, after)

    def failed(self, subscription: str = "default", limit: int = 100, after: int | None = None) -> list[RecordStatus]:
        """Return a page of the failed records: given up, or waiting for another attempt."""
        return self._load_page("page_parked", subscription, limit, after, states=[*FAILED_STATES])

    def parked(self, subscription: str = "default", limit: int = 100, after: int | None = None) -> list[RecordStatus]:
        """Return a page of the records that a subscription has set aside from normal reading, such as failed or dead
        ones.

        The states of parked records are failed, deferred, delayed, held, ready, dead and discarded."""
        return self._load_page("page_parked", subscription, limit, after, states=[*STATES])

    def completed(
        self, subscription: str = "default", limit: int = 100, after: int | None = None
    ) -> list[RecordStatus]:
        """Return a page of the records that a subscription has completed and that are not deleted yet."""
        # At most a page of each partition is read.
        return self._load_page("page_completed", subscription, limit, after)

    def _load_page(
        self, name: str, subscription: str, limit: int, after: int | None, **more: object
    ) -> list[RecordStatus]:
        with self._open_session(subscription) as conn:
            if arguments.check_limit(limit) > LARGEST_PAGE:
                raise PartboxError(
                    f"limit {limit} is too much for a page: give at most {LARGEST_PAGE:,}, then ask for "
                    "the page after it"
                )
            above = arguments.check_after(after) or 0
            return stats.load_page(conn, name, self._schema, subscription, limit, above, **more)


RATE_WINDOW: Final = 5.0  # seconds over which rates are averaged


@dataclass(frozen=True, slots=True)
class Rates:
    """Estimated records per second: published to the outbox, and delivered by a subscription."""

    published: float
    delivered: float


class _RatePoint(NamedTuple):
    at: datetime
    published: float
    delivered: float


class RateMeter:
    """A meter of how many events per second are published and delivered in each subscription, over the last seconds.

    Pass every overview to `add_overview`, because rates are computed from the differences between overviews."""

    def __init__(self) -> None:
        self._last: Overview | None = None
        self._points: dict[str, deque[_RatePoint]] = {}

    def add_overview(self, overview: Overview) -> None:
        """Update the rates from new statistics. Ignore an overview that is not newer than the previous one."""
        last = self._last
        if last is not None and overview.at <= last.at:
            return
        before = {each.subscription: each for each in last.clusters} if last else {}
        self._last = overview
        self._points = {
            each.subscription: self._extend_points(overview, each, before, last) for each in overview.clusters
        }

    def compute_rates(self, subscription: str) -> Rates | None:
        """Return the rates of a subscription, or None until two overviews of the subscription were observed."""
        points = self._points.get(subscription)
        if points is None or len(points) < 2:
            return None
        first, last = points[0], points[-1]
        seconds = (last.at - first.at).total_seconds()
        published, delivered = last.published - first.published, last.delivered - first.delivered
        return Rates(published / seconds, max(0.0, delivered) / seconds)

    def _extend_points(
        self, overview: Overview, cluster: Cluster, before: dict[str, Cluster], last: Overview | None
    ) -> deque[_RatePoint]:
        points = self._points.get(cluster.subscription)
        known = before.get(cluster.subscription)
        if last is None or known is None or points is None:
            return deque([_RatePoint(overview.at, 0.0, 0.0)])
        drawn = max(0, overview.newest_id - last.newest_id)
        published, done = points[-1].published + drawn, points[-1].delivered + estimate_delivered(known, cluster, drawn)
        points.append(_RatePoint(overview.at, published, done))
        while len(points) > 2 and (overview.at - points[0].at).total_seconds() > RATE_WINDOW:
            points.popleft()
        return points


def estimate_delivered(before: Cluster, after: Cluster, drawn: int) -> float:
    """Estimate how many records a subscription finished between two reads of its statistics."""
    # `drawn` is the number of record ids that were assigned between the two reads. The result is negative after a
    # replay.
    # If both counts of a partition are exact, the number is the published records minus the growth of the pending ones.
    # An estimated count is off by more than the number delivered, so there the ids that the cursor has passed are
    # multiplied by the density of records above it.
    parked = sum(after.parked.values()) - sum(before.parked.values())
    if before.unlisted or after.unlisted:
        return drawn - (after.pending - before.pending) - parked
    pairs = list(zip(before.partitions, after.partitions, strict=False))
    deep = [(old, new) for old, new in pairs if not (old.exact and new.exact)]
    counted = sum(new.pending - old.pending for old, new in pairs if old.exact and new.exact)
    deep_share = min(1.0, sum(_compute_id_density(old, new) for old, new in deep))
    travelled = sum((new.last_id - old.last_id) * _compute_id_density(old, new) for old, new in deep)
    return travelled + drawn * (1.0 - deep_share) - counted - parked


def _compute_id_density(old: PartitionStats, new: PartitionStats) -> float:
    return new.fill or old.fill or 0.0


MAX_NEWS: Final = 50


@dataclass(frozen=True, slots=True)
class NewsItem:
    """A line of text in a live view that reports a change of a subscription, such as a process that has joined.

    `kind` is joined, gone, leaves, moved or said."""

    at: datetime
    kind: str
    text: str


class NewsFeed:
    """The latest news lines about a subscription, oldest first. A full list drops its oldest lines."""

    def __init__(self, kept: int = MAX_NEWS) -> None:
        self.items: deque[NewsItem] = deque(maxlen=kept)

    def add_item(self, text: str, kind: str = "said", at: datetime | None = None) -> NewsItem:
        made = NewsItem(at or datetime.now(UTC), kind, text)
        self.items.append(made)
        return made


@dataclass(frozen=True, slots=True)
class ClusterChanges:
    """The processes that came or went and the partitions that changed owner, between two reads of statistics.

    `gone` has the number of partitions that each lost process still owned. `owner_changes` maps each claimed partition
    to the old owner, None if it had released the partition before, and the new one."""

    joined: tuple[Instance, ...]
    leaving: tuple[Instance, ...]
    gone: tuple[tuple[Instance, int], ...]
    owner_changes: dict[int, tuple[UUID | None, UUID | None]]


def compare_clusters(before: Cluster, after: Cluster) -> ClusterChanges:
    """Return the processes that came or went and the partitions that changed owner, between two reads of statistics."""
    # Both reads are of the same subscription.
    was = {each.instance_id: each for each in before.instances}
    now = {each.instance_id: each for each in after.instances}
    owned = Counter(each.owner for each in before.partitions)
    return ClusterChanges(
        joined=tuple(each for id, each in now.items() if id not in was),
        leaving=tuple(each for id, each in now.items() if id in was and each.draining and not was[id].draining),
        gone=tuple((each, owned[id]) for id, each in was.items() if id not in now),
        owner_changes={
            new.partition: (old.owner if old.owner != new.owner else None, new.owner)
            for old, new in zip(before.partitions, after.partitions, strict=False)
            if new.epoch != old.epoch
        },
    )
