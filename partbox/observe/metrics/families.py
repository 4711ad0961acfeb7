"""Prometheus metric families made from readings of meters and from overviews of databases."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple
from uuid import UUID

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from partbox.db.delivery.limits import HandlerLimit
from partbox.db.inspect.stats import Cluster, Instance, Overview
from partbox.observe.metrics.meter import MEASURED, OTHER, MeterReading, count_cells
from partbox.observe.metrics.table import BY_NAME, METRICS, STATUSES, Metric
from partbox.protocol.limit_addresses import LimitKind

# The most handlers with which a node shows series of handlers that never ran.
MAX_UNCOUNTED = 100

Labels = tuple[str, ...]
Values = dict[Labels, list[float]]
Row = tuple[Labels, float]
Rows = Callable[[Cluster, Collection[UUID]], Iterable[Row]]

FAMILIES: dict[str, Callable[..., Family]] = {
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
    "gauge": GaugeMetricFamily,
}


class LabelledReading(NamedTuple):
    """The metric values of the worker processes of one subscription, with the labels to show them under."""

    # `labels` are the label values for every series.

    labels: Labels
    reading: MeterReading


class LabelledOverview(NamedTuple):
    """The statistics of all subscriptions in one database, with the labels to show them under as metrics."""

    # `labels` are the label values that come before a series' own, `own_instances` the ids of this node's worker
    # processes.

    labels: Labels
    overview: Overview
    own_instances: Collection[UUID]


def build_family(prefix: str, metric: Metric, extra: Labels = ()) -> Family:
    # `extra` names the labels that come before the metric's own.
    return FAMILIES[metric.kind](f"{prefix}_{metric.name}", metric.meaning, labels=[*extra, *metric.labels])


def build_process_families(prefix: str, readings: Sequence[LabelledReading], extra: Labels = ()) -> Iterator[Family]:
    """Yield the Prometheus metric families that the worker processes measure."""
    # Readings with the same label values are summed.
    shown = [_find_shown(each.reading) for each in readings]
    for metric in MEASURED:
        made = build_family(prefix, metric, extra)
        for labels, cells in sorted(_gather_values(metric, readings, shown).items()):
            if metric.buckets:
                bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
                buckets = list(zip(bounds, accumulate(cells[:-1]), strict=True))
                made.add_metric(labels, buckets, cells[-1])  # type: ignore[attr-defined]
            else:
                made.add_metric(labels, cells[0])  # type: ignore[attr-defined]
        yield made
    living = build_family(prefix, BY_NAME["processes"], extra)
    for labels in sorted({read.labels for read in readings}):
        count = sum(len(read.reading.living_cells) for read in readings if read.labels == labels)
        living.add_metric(labels, count)  # type: ignore[attr-defined]
    yield living


def to_label_value(value: str) -> str:
    """Return a text that is safe to encode as UTF-8, for use as a label value."""
    # Names from the application may hold lone surrogates, which are escaped.
    return value.encode(errors="backslashreplace").decode()


def _find_shown(reading: MeterReading) -> set[str]:
    # Return the handlers and sinks whose series are shown. The first count of a handler shows all its series. With many
    # handlers, most of an answer would be series of handlers that never ran, so such series are left out.
    layout = reading.layout
    found = {*layout.handlers, *layout.sinks} - {OTHER} if len(layout.handlers) <= MAX_UNCOUNTED else set[str]()
    for metric in MEASURED:
        if "handler" in metric.labels:
            values = reading.layout.list_label_values(metric)
            found.update(each for each in values if each not in found and any(_read_cells(metric, reading, each)))
    return found


def _gather_values(metric: Metric, readings: Sequence[LabelledReading], shown: Sequence[set[str]]) -> Values:
    found: Values = {}
    for (labels, reading), names in zip(readings, shown, strict=True):
        for value in reading.layout.list_label_values(metric):
            if "handler" in metric.labels and value not in names:
                continue
            cells = _read_cells(metric, reading, value)
            whole = (*labels, *([to_label_value(value)] if value else []))
            before = found.get(whole)
            found[whole] = (
                cells if before is None else [merge_values(metric, pair) for pair in zip(before, cells, strict=True)]
            )
    return found


def _read_cells(metric: Metric, reading: MeterReading, value: str) -> list[float]:
    at = reading.layout.find_index(metric.name, value)
    if metric.kind != "gauge":
        return list(reading.totals[at : at + count_cells(metric)])
    return [merge_values(metric, [cells[at] for cells in reading.living_cells])]


def merge_values(metric: Metric, values: Iterable[float]) -> float:
    """Combine the values of one metric from several sources, by sum or maximum as the metric defines."""
    return max(values, default=0.0) if metric.greatest else sum(values)


def build_database_families(prefix: str, overviews: Sequence[LabelledOverview], extra: Labels = ()) -> Iterator[Family]:
    """Yield the Prometheus metric families that are read from the databases, for all subscriptions."""
    for metric in METRICS:
        if metric.name not in _ROWS:
            continue
        made = build_family(prefix, metric, extra)
        for labels, overview, own_instances in overviews:
            for cluster in overview.clusters:
                for more, value in _ROWS[metric.name](cluster, own_instances):
                    made.add_metric([*labels, to_label_value(cluster.subscription), *more], value)  # type: ignore[attr-defined]
        yield made


def _make_single_row(value: Callable[[Cluster], float]) -> Rows:
    return lambda cluster, _: [((), value(cluster))]


def _list_record_rows(cluster: Cluster, _: Collection[UUID]) -> Iterable[Row]:
    counts = {"pending": cluster.pending, "completed": cluster.completed, **cluster.parked}
    return [((status,), counts.get(status, 0)) for status in STATUSES]


def _make_instance_rows(value: Callable[[Instance], float]) -> Rows:
    return lambda cluster, _: [
        ((to_label_value(each.node), str(each.instance_id)), value(each)) for each in cluster.instances
    ]


def _make_limit_rows(value: Callable[[HandlerLimit], float | None]) -> Rows:
    def rows(cluster: Cluster, _: Collection[UUID]) -> Iterator[Row]:
        for each in cluster.limits:
            # The values of a handler are too many for labels.
            if each.kind == LimitKind.HANDLER and (number := value(each)) is not None:
                yield (to_label_value(each.handler),), number

    return rows


def _list_owner_rows(cluster: Cluster, _: Collection[UUID]) -> Iterable[Row]:
    ranked = sorted(cluster.instances, key=lambda each: (each.node, each.pid, each.instance_id))
    owners = {
        each.instance_id: ((to_label_value(each.node), str(each.instance_id)), rank)
        for rank, each in enumerate(ranked, 1)
    }
    for partition in cluster.partitions:
        who, rank = owners.get(partition.owner, (("", ""), 0)) if partition.owner else (("", ""), 0)
        yield (str(partition.partition), *who), rank


def _make_partition_rows(attribute: str) -> Rows:
    return lambda cluster, _: [((str(each.partition),), getattr(each, attribute) or 0) for each in cluster.partitions]


_ROWS: dict[str, Rows] = {
    "records": _list_record_rows,
    "oldest_pending_age_seconds": _make_single_row(lambda cluster: cluster.oldest_age or 0.0),
    "partitions": _make_single_row(lambda cluster: cluster.sums.partitions),
    "partitions_unowned": _make_single_row(lambda cluster: cluster.unowned),
    "partitions_assigned_here": lambda cluster, own_instances: [
        ((), sum(each.owner in own_instances for each in cluster.partitions))
    ],
    "instance_partitions": _make_instance_rows(lambda each: each.partitions),
    "instances": _make_single_row(lambda cluster: len(cluster.instances)),
    "instance_heartbeat_age_seconds": _make_instance_rows(lambda each: each.heartbeat_age),
    "partition_pending_max": _make_single_row(lambda cluster: cluster.pending_max),
    "partition_pending_avg": _make_single_row(lambda cluster: cluster.sums.pending / max(1, cluster.sums.partitions)),
    "subscription_paused": _make_single_row(lambda cluster: cluster.paused),
    "blocked_keys": _make_single_row(lambda cluster: cluster.blocked_keys),
    "limit_per_second": _make_limit_rows(lambda each: each.rate),
    "limit_at_once": _make_limit_rows(lambda each: each.at_once),
    "limit_waiting": _make_limit_rows(lambda each: each.waiting),
    "limit_wait_seconds": _make_limit_rows(lambda each: each.waited or 0.0),
    "segments_ahead": _make_single_row(lambda cluster: cluster.segments_ahead),
    "partition_owner": _list_owner_rows,
    "partition_epoch": _make_partition_rows("epoch"),
    "partition_pending": _make_partition_rows("pending"),
    "partition_lag_seconds": _make_partition_rows("oldest_age"),
}
