"""The table of all metrics: type, labels, name and meaning. Nothing else is exposed."""

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Literal

Kind = Literal["counter", "histogram", "gauge"]

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
    """The place where a metric is measured, such as the worker processes or the database."""

    PROCESSES = "the worker processes of the node"
    NODE = "the node's supervisor"
    APPLICATION = "the publishing application"
    DATABASE = "the database, the same on every node"
    SCRAPE = "the scrape itself"


@dataclass(frozen=True, slots=True)
class Metric:
    """The definition of one metric: its name, type, labels, meaning and origin."""

    # `name` has no prefix, `buckets` are a histogram's upper bounds in seconds. Counters and histograms sum all
    # processes of a node, living and dead. Gauges are the sum over living processes, or the maximum if `greatest`.
    # `of_sinks` limits a metric to handlers that are sinks.

    kind: Kind
    source: MetricSource
    labels: tuple[str, ...]
    name: str
    meaning: str
    buckets: tuple[float, ...] = ()
    greatest: bool = False
    of_sinks: bool = False


_counter = partial(Metric, "counter", MetricSource.PROCESSES)
_by_node = partial(Metric, "counter", MetricSource.NODE, SUBSCRIPTION)
_histogram = partial(Metric, "histogram", MetricSource.PROCESSES)
_living = partial(Metric, "gauge", MetricSource.PROCESSES)
_of_node = partial(Metric, "gauge", MetricSource.NODE, SUBSCRIPTION)
_database = partial(Metric, "gauge", MetricSource.DATABASE)
_scrape = partial(Metric, "gauge", MetricSource.SCRAPE, ())

METRICS: tuple[Metric, ...] = (
    _counter(SUBSCRIPTION, "records_read_total", "records that polls have brought"),
    _counter(HANDLER, "delivered_total", "events that are done"),
    _counter(
        HANDLER,
        "failed_total",
        "attempts that failed: the handler raised, or the event was charged with an attempt and is not done",
    ),
    _counter(HANDLER, "dead_total", "events that became dead"),
    _counter(HANDLER, "deferred_total", "events put off without charging an attempt: `RetryAfter`, or an open circuit"),
    _counter(
        STATE,
        "parked_total",
        "records that were parked, by state; `held` records wait behind another one of their aggregate",
    ),
    _counter(
        SUBSCRIPTION,
        "fence_rejections_total",
        "writes that the fence refused, because another process owns the partition",
    ),
    _by_node("rebalances_total", "rebalancing plans made by this node"),
    _by_node("moved_partitions_total", "partitions moved by this node's rebalancing"),
    _counter(SUBSCRIPTION, "claimed_partitions_total", "partitions that processes have claimed"),
    _counter(SUBSCRIPTION, "lost_partitions_total", "partitions taken from processes whose lease was over"),
    _counter(SUBSCRIPTION, "late_scan_ids_total", "ids that polls have searched for records that committed late"),
    _by_node("buried_instances_total", "dead processes, of any node, that this node has removed"),
    _by_node("process_restarts_total", "processes of this node that died and were replaced"),
    _counter(SUBSCRIPTION, "saves_total", "saves of cursors and parked records"),
    _counter(SUBSCRIPTION, "save_seconds_total", "seconds that PostgreSQL spent on all saves"),
    _histogram(
        HANDLER,
        "handler_seconds",
        "how long handlers ran, failed attempts included; runs below 1 ms are not timed singly: they count in "
        "the first bucket, and share the remaining time",
        HANDLER_SECONDS,
    ),
    _histogram(
        HANDLER,
        "lag_seconds",
        "from publish to the handler's end; where one thread delivers events in a row, for 20 ms and until the "
        "handler that runs then has ended, the lags of the first and of the last event count for half of the events "
        "each",
        LAG_SECONDS,
    ),
    _histogram(
        SUBSCRIPTION, "handover_seconds", "from a partition's release to its claim by the next owner", HANDOVER_SECONDS
    ),
    _counter(HANDLER, "sink_sent_total", "messages that the broker of a sink has acknowledged", of_sinks=True),
    _counter(
        HANDLER, "sink_retries_total", "messages that were sent and not acknowledged, and are sent again", of_sinks=True
    ),
    _histogram(
        HANDLER,
        "sink_acknowledged_seconds",
        "from sending a list of messages until the broker has acknowledged the whole list, counted for each message",
        ACKNOWLEDGED_SECONDS,
        of_sinks=True,
    ),
    _living(
        HANDLER, "sink_in_flight", "messages that were sent and that the broker has not answered yet", of_sinks=True
    ),
    _of_node("processes", "living worker processes of this node"),
    _living(SUBSCRIPTION, "handlers_running", "handlers that run now"),
    _living(
        SUBSCRIPTION,
        "lanes",
        "queues in memory, waiting or running: of aggregates, or of partitions where one thread runs all handlers",
    ),
    _living(
        SUBSCRIPTION, "window_used_ratio", "how full the window of the fullest process is, from 0 to 1", greatest=True
    ),
    _living(HANDLER, "circuit_open", "processes in which the handler's circuit is open"),
    Metric(
        "counter",
        MetricSource.APPLICATION,
        (),
        "published_total",
        "events written through `Outbox(registry=…)`, including events of transactions rolled back later",
    ),
    _database(
        ("subscription", "status"),
        "records",
        "records by status; pending is counted up to 10,000 a partition and estimated beyond, completed is estimated",
    ),
    _database(SUBSCRIPTION, "oldest_pending_age_seconds", "age of the oldest pending record, 0 if there is none"),
    _database(SUBSCRIPTION, "partitions", "partitions, always 256"),
    _database(SUBSCRIPTION, "partitions_unowned", "partitions that no instance owns"),
    _of_node("partitions_assigned_here", "partitions that this node's processes own"),
    _database(INSTANCE, "instance_partitions", "partitions that a process owns"),
    _database(SUBSCRIPTION, "instances", "worker processes of all nodes"),
    _database(INSTANCE, "instance_heartbeat_age_seconds", "time since a process's lease was renewed"),
    _database(SUBSCRIPTION, "partition_pending_max", "pending records of the fullest partition"),
    _database(SUBSCRIPTION, "partition_pending_avg", "pending records per partition, the mean"),
    _database(SUBSCRIPTION, "subscription_paused", "1 while the subscription is paused, else 0"),
    _database(SUBSCRIPTION, "blocked_keys", "aggregates whose events wait for a failed event"),
    _database(
        HANDLER,
        "limit_per_second",
        "calls of the handler that may start in a second, in the whole subscription; only if such a limit is set",
    ),
    _database(
        HANDLER,
        "limit_at_once",
        "calls of the handler that may run at once; only if such a limit is set",
    ),
    _database(HANDLER, "limit_waiting", "events that wait for their turn; only for handlers with a limit"),
    _database(HANDLER, "limit_wait_seconds", "how long the first waiting event has waited, 0 if none waits"),
    _database(
        SUBSCRIPTION,
        "segments_ahead",
        "segments of the log, which all subscriptions share, that begin above the newest id; if fewer than three are "
        "left, more are made",
    ),
    _database(
        ("subscription", "partition", "node", "instance"),
        "partition_owner",
        "the owner's rank, from 1, among the instances by node and pid; 0 with empty labels if there is no owner",
    ),
    _database(PARTITION, "partition_epoch", "the fencing number of the last claim"),
    _database(PARTITION, "partition_pending", "pending records of a partition"),
    _database(PARTITION, "partition_lag_seconds", "age of the partition's oldest pending record, 0 if there is none"),
    _database(
        ("severity",),
        "doctor_problems",
        "findings of `partbox doctor` by severity: problem, warning or note; it looks once a minute or more rarely, "
        "and only while somebody asks for metrics",
    ),
    _scrape("database_up", "1 if the database answers, even if slowly, else 0"),
    _scrape("scrape_seconds", "how long it took to gather these metrics"),
)

BY_NAME = {metric.name: metric for metric in METRICS}
