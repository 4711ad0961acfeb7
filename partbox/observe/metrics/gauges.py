"""Overviews of databases as Prometheus metric families."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from prometheus_client import Metric as Family

from partbox.db.inspect.stats import Cluster, Instance, Overview
from partbox.observe.metrics.families import Labels, family, text
from partbox.observe.metrics.table import METRICS, STATUSES, MetricSource

Row = tuple[Labels, float]


class LabelledOverview(NamedTuple):
    """An overview of an outbox; `labels` are the label values that come before those of a series, `mine` the instances
    of this node."""

    labels: Labels
    overview: Overview
    mine: Collection[UUID]


def of_database(prefix: str, seen: Sequence[LabelledOverview], extra: Labels = ()) -> Iterator[Family]:
    """The metrics of databases, of all their subscriptions."""
    for metric in METRICS:
        if metric.name not in _ROWS:
            continue
        made = family(prefix, metric, extra)
        for labels, overview, mine in seen:
            for cluster in overview.clusters:
                for more, value in _ROWS[metric.name](cluster, mine):
                    made.add_metric([*labels, text(cluster.subscription), *more], value)  # type: ignore[attr-defined]
        yield made


def _one(value: Callable[[Cluster], float]) -> Callable[[Cluster, Collection[UUID]], Iterable[Row]]:
    return lambda cluster, _: [((), value(cluster))]


def _records(cluster: Cluster, _: Collection[UUID]) -> Iterable[Row]:
    counts = {"pending": cluster.pending, "completed": cluster.completed, **cluster.parked}
    return [((status,), counts.get(status, 0)) for status in STATUSES]


def _of_instances(value: Callable[[Instance], float]) -> Callable[[Cluster, Collection[UUID]], Iterable[Row]]:
    return lambda cluster, _: [((text(each.node), str(each.instance_id)), value(each)) for each in cluster.instances]


def _owners(cluster: Cluster, _: Collection[UUID]) -> Iterable[Row]:
    ranked = sorted(cluster.instances, key=lambda each: (each.node, each.pid, each.instance_id))
    owners = {each.instance_id: ((text(each.node), str(each.instance_id)), rank) for rank, each in enumerate(ranked, 1)}
    for partition in cluster.partitions:
        who, rank = owners.get(partition.owner, (("", ""), 0)) if partition.owner else (("", ""), 0)
        yield (str(partition.partition), *who), rank


def _of_partitions(attribute: str) -> Callable[[Cluster, Collection[UUID]], Iterable[Row]]:
    return lambda cluster, _: [((str(each.partition),), getattr(each, attribute) or 0) for each in cluster.partitions]


_ROWS: dict[str, Callable[[Cluster, Collection[UUID]], Iterable[Row]]] = {
    "records": _records,
    "oldest_pending_age_seconds": _one(lambda cluster: cluster.oldest_age or 0.0),
    "partitions": _one(lambda cluster: cluster.sums.partitions),
    "partitions_unowned": _one(lambda cluster: cluster.unowned),
    "partitions_assigned_here": lambda cluster, mine: [((), sum(each.owner in mine for each in cluster.partitions))],
    "instance_partitions": _of_instances(lambda each: each.partitions),
    "instances": _one(lambda cluster: len(cluster.instances)),
    "instance_heartbeat_age_seconds": _of_instances(lambda each: each.heartbeat_age),
    "partition_pending_max": _one(lambda cluster: cluster.pending_max),
    "partition_pending_avg": _one(lambda cluster: cluster.sums.pending / max(1, cluster.sums.partitions)),
    "subscription_paused": _one(lambda cluster: cluster.paused),
    "blocked_keys": _one(lambda cluster: cluster.blocked_keys),
    "segments_ahead": _one(lambda cluster: cluster.segments_ahead),
    "partition_owner": _owners,
    "partition_epoch": _of_partitions("epoch"),
    "partition_pending": _of_partitions("pending"),
    "partition_lag_seconds": _of_partitions("oldest_age"),
}

assert all(
    metric.name in _ROWS or metric.name == "partitions_assigned_here"
    for metric in METRICS
    if metric.source is MetricSource.DATABASE
)
