"""The table of all metrics: name, type, labels, meaning, and the name in other outboxes. Nothing else is exposed."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

Kind = Literal["counter", "histogram", "gauge"]

NONE = "-"
SUBSCRIPTION = ("subscription",)
HANDLER = ("subscription", "handler")
STATE = ("subscription", "state")
INSTANCE = ("subscription", "node", "instance")
PARTITION = ("subscription", "partition")

HANDLER_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LAG_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0),
    *(10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0),
)
ACKNOWLEDGED_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
HANDOVER_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

PARKED = ("retrying", "deferred", "scheduled", "held", "ready", "dead")
STATUSES = ("pending", "completed", *PARKED, "discarded")


class MetricSource(Enum):
    """The source of a metric."""

    PROCESSES = "the worker processes of the node"
    NODE = "the node's supervisor"
    APPLICATION = "the publishing application"
    DATABASE = "the database, the same on every node"
    SCRAPE = "the scrape itself"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` is without the prefix; `buckets` are the upper bounds of a histogram, in seconds.

    Counters and histograms are summed over the processes of a node, dead ones included; gauges are those of the living:
    their sum, or their `greatest`. `of_sinks`: only for handlers that are sinks. `namastack`, `outbox_java`: the
    names there.
    """

    name: str
    kind: Kind
    source: MetricSource
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()
    greatest: bool = False
    of_sinks: bool = False
    namastack: str = NONE
    outbox_java: str = NONE


def _counter(name: str, labels: tuple[str, ...], meaning: str, **others: str) -> Metric:
    return Metric(f"{name}_total", "counter", MetricSource.PROCESSES, labels, meaning, **others)  # type: ignore[arg-type]


def _by_node(name: str, meaning: str) -> Metric:
    return Metric(f"{name}_total", "counter", MetricSource.NODE, SUBSCRIPTION, meaning)


def _histogram(name: str, labels: tuple[str, ...], buckets: tuple[float, ...], meaning: str, **others: str) -> Metric:
    return Metric(name, "histogram", MetricSource.PROCESSES, labels, meaning, buckets, **others)  # type: ignore[arg-type]


def _living(name: str, labels: tuple[str, ...], meaning: str, *, greatest: bool = False, **others: str) -> Metric:
    return Metric(name, "gauge", MetricSource.PROCESSES, labels, meaning, greatest=greatest, **others)  # type: ignore[arg-type]


def _of_sinks(name: str, kind: Kind, meaning: str, buckets: tuple[float, ...] = ()) -> Metric:
    return Metric(name, kind, MetricSource.PROCESSES, HANDLER, meaning, buckets, of_sinks=True)


def _database(name: str, labels: tuple[str, ...], meaning: str, **others: str) -> Metric:
    return Metric(name, "gauge", MetricSource.DATABASE, labels, meaning, **others)  # type: ignore[arg-type]


METRICS: tuple[Metric, ...] = (
    _counter("records_read", SUBSCRIPTION, "records that polls have brought", outbox_java="`outbox.enqueue.cold`"),
    _counter("delivered", HANDLER, "events that are done", outbox_java="`outbox.dispatch.success`"),
    _counter(
        "failed",
        HANDLER,
        "attempts that failed: the handler raised, or the event was charged with an attempt and is not done",
        outbox_java="`outbox.dispatch.failure`",
    ),
    _counter("dead", HANDLER, "events that became dead", outbox_java="`outbox.dispatch.dead`"),
    _counter(
        "deferred",
        HANDLER,
        "events put off without an attempt: `RetryAfter`, or an open circuit",
        outbox_java="`outbox.dispatch.deferred`",
    ),
    _counter("parked", STATE, "records that were parked, by state; `held` wait behind another of their aggregate"),
    _counter("fence_rejections", SUBSCRIPTION, "writes that the fence refused, because another owns the partition"),
    _by_node("rebalances", "plans that this node has made"),
    _by_node("moved_partitions", "partitions that moved by those plans"),
    _counter("claimed_partitions", SUBSCRIPTION, "partitions that processes have claimed"),
    _counter("lost_partitions", SUBSCRIPTION, "partitions taken from processes whose lease was over"),
    _counter("late_scan_ids", SUBSCRIPTION, "ids in which polls have looked for records that committed late"),
    _by_node("buried_instances", "dead processes, of any node, that this node has buried"),
    _by_node("process_restarts", "processes of this node that died and were replaced"),
    _counter("saves", SUBSCRIPTION, "saves of cursors and parked records"),
    _counter("save_seconds", SUBSCRIPTION, "seconds that the server spent on these saves"),
    _histogram(
        "handler_seconds",
        HANDLER,
        HANDLER_SECONDS,
        "how long handlers ran, failed attempts included; all below 1 ms are in the first bucket and share "
        "what is left of a turn's time",
        outbox_java="`outbox.dispatch.listener.duration.ms`",
    ),
    _histogram(
        "lag_seconds",
        HANDLER,
        LAG_SECONDS,
        "from publish to the handler's end; of events that one thread delivers in a row, for 20 ms and until the "
        "handler that runs then has ended, the lags of the first and of the last stand for half of them each",
        outbox_java="`outbox.dispatch.latency.ms`",
    ),
    _histogram(
        "handover_seconds", SUBSCRIPTION, HANDOVER_SECONDS, "from a partition's release to its claim by the next owner"
    ),
    _of_sinks("sink_sent_total", "counter", "messages that the broker of a sink has acknowledged"),
    _of_sinks("sink_retries_total", "counter", "messages that were sent and not acknowledged, and are sent again"),
    _of_sinks(
        "sink_acknowledged_seconds",
        "histogram",
        "from sending a list of messages until the broker has acknowledged all of it, for each of its messages",
        ACKNOWLEDGED_SECONDS,
    ),
    _of_sinks("sink_in_flight", "gauge", "messages that were sent and that the broker has not answered yet"),
    Metric("processes", "gauge", MetricSource.NODE, SUBSCRIPTION, "worker processes of this node that live"),
    _living("handlers_running", SUBSCRIPTION, "handlers that run now"),
    _living(
        "lanes",
        SUBSCRIPTION,
        "queues in memory, waiting or running: of aggregates, or of partitions where one thread runs all handlers",
        outbox_java="`outbox.queue.hot.depth`, `outbox.queue.cold.depth`",
    ),
    _living(
        "window_used_ratio", SUBSCRIPTION, "how full the window of the fullest process is, from 0 to 1", greatest=True
    ),
    _living("circuit_open", HANDLER, "processes in which the handler's circuit is open"),
    Metric(
        "published_total",
        "counter",
        MetricSource.APPLICATION,
        (),
        "events that were written, in `Outbox(registry=…)`; a transaction rolled back later is counted too",
    ),
    _database(
        "records",
        ("subscription", "status"),
        "records by status; pending is counted up to 10,000 a partition and estimated beyond, completed is estimated",
        namastack="`outbox.records.count` (new, failed, completed), `outbox.partitions.pending.records.total`",
    ),
    _database(
        "oldest_pending_age_seconds",
        SUBSCRIPTION,
        "age of the oldest pending record, 0 if there is none",
        outbox_java="`outbox.lag.oldest.ms`",
    ),
    _database("partitions", SUBSCRIPTION, "partitions, always 256", namastack="`outbox.cluster.partitions.total`"),
    _database(
        "partitions_unowned",
        SUBSCRIPTION,
        "partitions that no instance owns",
        namastack="`outbox.cluster.partitions.unassigned.count`",
    ),
    Metric(
        "partitions_assigned_here",
        "gauge",
        MetricSource.NODE,
        SUBSCRIPTION,
        "partitions that this node's processes own",
        namastack="`outbox.partitions.assigned.count`",
    ),
    _database(
        "instance_partitions",
        INSTANCE,
        "partitions that a process owns",
        namastack="`outbox.cluster.partitions.avg_per_instance` (a mean)",
    ),
    _database("instances", SUBSCRIPTION, "worker processes of all nodes", namastack="`outbox.cluster.instances.total`"),
    _database("instance_heartbeat_age_seconds", INSTANCE, "time since a process's lease was renewed"),
    _database(
        "partition_pending_max",
        SUBSCRIPTION,
        "pending records of the fullest partition",
        namastack="`outbox.partitions.pending.records.max`",
    ),
    _database(
        "partition_pending_avg",
        SUBSCRIPTION,
        "pending records of a partition, the mean",
        namastack="`outbox.partitions.pending.records.avg`",
    ),
    _database("subscription_paused", SUBSCRIPTION, "1 while the subscription is paused, else 0"),
    _database("blocked_keys", SUBSCRIPTION, "aggregates whose events wait for one that failed"),
    _database(
        "segments_ahead",
        SUBSCRIPTION,
        "segments of the log, which all subscriptions share, that begin above the newest id; below three more are made",
    ),
    _database(
        "partition_owner",
        ("subscription", "partition", "node", "instance"),
        "the owner's rank, from 1, among the instances by node and pid; 0 with empty labels where nobody owns it",
        namastack="`outbox.cluster.partitions.unassigned.flag`",
    ),
    _database("partition_epoch", PARTITION, "the fencing number of the last claim"),
    _database("partition_pending", PARTITION, "pending records of a partition"),
    _database("partition_lag_seconds", PARTITION, "age of the partition's oldest pending record, 0 if there is none"),
    Metric("database_up", "gauge", MetricSource.SCRAPE, (), "1 if the database answers, though it may be slow, else 0"),
    Metric("scrape_seconds", "gauge", MetricSource.SCRAPE, (), "how long it took to gather all this"),
)

BY_NAME = {metric.name: metric for metric in METRICS}
