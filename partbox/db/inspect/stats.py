"""The state of the subscriptions at one moment: their processes, partitions and backlog, and records by status."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import tuple_row

from partbox.db.delivery import limits, traffic
from partbox.db.delivery.instances import LifespanState, parse_lifespan, parse_running
from partbox.db.delivery.instances import RunningHandler as RunningHandler  # what an instance has is had from here
from partbox.db.delivery.limits import HandlerLimit, LimitReport
from partbox.db.delivery.traffic import SinkTraffic
from partbox.db.operator.subscriptions import Subscription
from partbox.db.schema.migrate import subscriptions
from partbox.db.sql import Conn, query, records, rows
from partbox.errors import SchemaError
from partbox.text.secrets import masked_or_none
from partbox.text.wording import no_subscription

EXACT_UP_TO: Final = 10_000  # pending records of a partition that are counted; beyond them they are estimated
EXACT_OF_LIST: Final = 100
STATES: Final = ("retrying", "deferred", "scheduled", "held", "ready", "dead", "discarded")
MAX_LISTED: Final = 50  # subscriptions whose partitions an overview lists
FINAL_STATES: Final = ("dead", "discarded")  # nobody tries them any more


@dataclass(frozen=True, slots=True)
class Instance:
    """A worker process; ages and lease in seconds, `partitions` how many it owns.

    `supervisor`: the start of a node that it belongs to, None if it does not say. `running`: its handlers that have run
    for over ten seconds, the longest first, and how many more there are. `sinks`: what it has sent to brokers.
    `limits`: those that it keeps, and what waits there, as it said `limits_age` seconds ago. `lifespan`: it is in
    that, and does not work yet.
    """

    instance_id: UUID
    node: str
    hostname: str
    pid: int
    version: str
    draining: bool
    age: float
    heartbeat_age: float
    lease: float
    partitions: int
    supervisor: UUID | None = None
    running: tuple[RunningHandler, ...] = ()
    running_more: int = 0
    sinks: tuple[SinkTraffic, ...] = ()
    limits: tuple[LimitReport, ...] = ()
    limits_age: float | None = None
    lifespan: LifespanState | None = None

    @property
    def expired(self) -> bool:
        """True if its lease is over: it is about to be buried."""
        return self.heartbeat_age > self.lease

    @property
    def state(self) -> str:
        """expired, starting, draining or working."""
        if self.expired:
            return "expired"
        return "starting" if self.lifespan is not None else "draining" if self.draining else "working"


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """A partition; `pending` records it has not consumed (an estimate unless `exact`), the oldest this old (s).

    `claimed_age`: seconds since it was last claimed, None if never. `saved_age`: since a save has said that something
    became of its records. `suspect`: its last owner died, and what may have killed it is not passed yet. Above
    `last_id` so many ids in one are records of it: `fill`.
    `parked_age`: so long a parked record should have been delivered (s); dead ones, and those of later, do not count.
    """

    partition: int
    assignee: UUID | None
    owner: UUID | None
    epoch: int
    pending: int
    exact: bool
    oldest_age: float | None
    claimed_age: float | None
    saved_age: float | None
    suspect: bool
    last_id: int = 0
    fill: float | None = None
    parked_age: float | None = None

    @property
    def unfinished_age(self) -> float | None:
        """Seconds that its oldest event waits, unread or parked; None if none does."""
        return _max_age(self.oldest_age, self.parked_age)


@dataclass(frozen=True, slots=True)
class PartitionSums:
    """All partitions of a subscription together; ages in seconds, as of a partition."""

    partitions: int
    unowned: int
    pending: int
    pending_max: int
    exact: bool
    oldest_age: float | None
    parked_age: float | None

    @property
    def unfinished_age(self) -> float | None:
        """Seconds that its oldest event waits, unread or parked; None if none does."""
        return _max_age(self.oldest_age, self.parked_age)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One subscription at one moment; `parked` counts the parked records by state, which are not pending.

    `unlisted`: the sums of its partitions, where an overview of many subscriptions does not list them; else None.
    `completed` estimates how many of the log's records it is through with; `blocked_keys` are aggregates whose events
    wait for one that cannot be finished. `segments_ahead` of the log, which all share, begin above the newest id.
    """

    schema: str
    subscription: str
    paused: bool
    instances: tuple[Instance, ...]
    partitions: tuple[PartitionStats, ...]
    parked: dict[str, int]
    created: datetime
    paused_at: datetime | None
    completed: int
    blocked_keys: int
    segments_ahead: int = 0
    unlisted: PartitionSums | None = None
    limits: tuple[HandlerLimit, ...] = ()

    @property
    def waiting(self) -> dict[str, int]:
        """Parked records by state, without dead and discarded ones, which nobody tries any more."""
        return {state: count for state, count in self.parked.items() if state not in FINAL_STATES}

    @property
    def sums(self) -> PartitionSums:
        """All its partitions together."""
        if self.unlisted is not None:
            return self.unlisted
        living = {instance.instance_id for instance in self.instances}
        return PartitionSums(
            partitions=len(self.partitions),
            unowned=sum(partition.owner not in living for partition in self.partitions),
            pending=sum(partition.pending for partition in self.partitions),
            pending_max=max((partition.pending for partition in self.partitions), default=0),
            exact=all(partition.exact for partition in self.partitions),
            oldest_age=_max_age(*(partition.oldest_age for partition in self.partitions)),
            parked_age=_max_age(*(partition.parked_age for partition in self.partitions)),
        )

    @property
    def unowned(self) -> int:
        """Partitions that no living instance owns."""
        return self.sums.unowned

    @property
    def sinks(self) -> list[SinkTraffic]:
        """The traffic of its processes since they began, by sink."""
        return traffic.merge(each for instance in self.instances for each in instance.sinks)

    @property
    def pending(self) -> int:
        return self.sums.pending

    @property
    def pending_max(self) -> int:
        return self.sums.pending_max

    @property
    def exact(self) -> bool:
        """True if `pending` was counted; beyond 10,000 records a partition it is estimated."""
        return self.sums.exact

    @property
    def oldest_age(self) -> float | None:
        """Seconds since the oldest pending record was published; None if nothing is pending."""
        return self.sums.oldest_age

    @property
    def unfinished_age(self) -> float | None:
        """Seconds that the oldest event waits, unread or parked: one behind a failed one is late, too."""
        return self.sums.unfinished_age

    @property
    def records(self) -> dict[str, int]:
        """The records of the log by status: pending, completed, and each state of parked ones, zeros too."""
        parked = {state: self.parked.get(state, 0) for state in STATES}
        return {"pending": self.pending, "completed": self.completed, **parked}


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """A record and what a subscription has made of it: `status` is pending, completed, or the state it is parked in.

    `attempts` that were counted and `last_error` are those of a parked one. `event_id` and `created_at` are None only
    if somebody took a parked record out of the log.
    """

    id: int
    event_id: UUID | None
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    partition: int
    created_at: datetime | None
    status: str
    attempts: int
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Overview:
    """All subscriptions of a schema, by name, at one moment of the database's clock; none if it is writer-only.

    `newest_id` is the highest record id that was drawn; a transaction that was rolled back has drawn its too.
    `database` is its name.
    """

    schema: str
    at: datetime
    clusters: tuple[Cluster, ...]
    newest_id: int = 0
    database: str = ""

    def cluster(self, subscription: str) -> Cluster:
        """The subscription of this name; SchemaError, naming those that exist, if there is none."""
        for each in self.clusters:
            if each.subscription == subscription:
                return each
        raise SchemaError(no_subscription(subscription, self.schema, [each.subscription for each in self.clusters]))


def overview(
    conn: Conn,
    schema: str,
    subscription: str | None = None,
    *,
    patience: float | None = None,
    exact_up_to: int = EXACT_UP_TO,
    named: Collection[str] = (),
    working: bool = False,
) -> Overview:
    """The state of all subscriptions, or of the one asked for if it exists, read in one statement.

    The partitions of 50 are listed: of the `named`, then of those with processes, and with `working` of all of these.
    psycopg.errors.QueryCanceled if that takes longer than `patience` seconds, or else than the session's
    statement_timeout.
    """
    limit = None if patience is None else str(max(1, int(patience * 1000)))
    values: dict[str, Any] = {"subscription": subscription, "limit": exact_up_to, "named": [*named]}
    values |= {"listed": MAX_LISTED, "working": working}
    with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query("stats_plan", schema), {"limit": limit})
        found = cursor.execute(query("stats_overview", schema), values).fetchall()
    at, database, newest_id, *log = found[0][:5]
    clusters = (_build_cluster(schema, at, log, row) for _, _, _, _, _, *row in found if row[0] is not None)
    return Overview(schema, at, tuple(clusters), newest_id, database)


def cluster(conn: Conn, schema: str, subscription: str) -> Cluster:
    """The state of `subscription`, read in one statement; SchemaError if there is no such subscription."""
    found = overview(conn, schema, subscription).clusters
    if not found:
        raise SchemaError(no_subscription(subscription, schema, subscriptions(conn, schema)))
    return found[0]


def _build_cluster(schema: str, at: datetime, log: list[int], row: list[Any]) -> Cluster:
    """The subscription of a row; of the log, how many records it holds, estimated, and its segments ahead."""
    in_log, ahead = log
    name, created, paused_at, instances, partitions, sums, parked, blocked_keys, changed = row
    found = tuple(PartitionStats(**_clamp_ages(_parse_uuids(each, "assignee", "owner"))) for each in partitions)
    members = tuple(_build_instance(each, at) for each in instances)
    unlisted = sums and PartitionSums(
        **_clamp_ages({key: value for key, value in sums.items() if key != "subscription"})
    )
    left = (unlisted.pending if unlisted else sum(each.pending for each in found)) + sum(parked.values())
    return Cluster(
        schema=schema,
        subscription=name,
        paused=paused_at is not None,
        instances=members,
        partitions=found,
        parked=parked,
        created=created,
        paused_at=paused_at,
        completed=max(0, in_log - left),
        blocked_keys=blocked_keys,
        segments_ahead=ahead,
        unlisted=unlisted,
        limits=limits.merge(name, (limit for each in members for limit in each.limits), limits.parse_changes(changed)),
    )


def _build_instance(row: dict[str, Any], at: datetime) -> Instance:
    running, more = parse_running(row["running"], at)
    known = _clamp_ages(_parse_uuids(row, "instance_id", "supervisor"))
    reports = {"sinks": traffic.parse_column(row["sinks"]), "limits": limits.parse_column(row["limits"])}
    lifespan = parse_lifespan(row["running"], at)
    return Instance(**known | reports | {"running": running, "running_more": more, "lifespan": lifespan})


def _parse_uuids(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    return row | {column: row[column] and UUID(row[column]) for column in columns}


def _clamp_ages(row: dict[str, Any]) -> dict[str, Any]:
    """The ages as floats; what was written just after the statement began is not of the future."""
    ages = {name: age if age is None else max(0.0, float(age)) for name, age in row.items() if name.endswith("age")}
    return row | ages


def _max_age(*ages: float | None) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def list_subscriptions(conn: Conn, schema: str) -> list[Subscription]:
    """All subscriptions by name, with what each has to do."""
    types = dict(conn.execute(query("subscription_types", schema), {}).fetchall())
    return [
        Subscription(
            each.subscription,
            each.created,
            each.paused_at,
            None if (wanted := types.get(each.subscription)) is None else tuple(wanted),
            len(each.instances),
            each.pending,
            each.exact,
            sum(each.waiting.values()),
            each.parked.get("dead", 0),
        )
        for each in overview(conn, schema, exact_up_to=EXACT_OF_LIST).clusters
    ]


def load_page(
    conn: Conn, name: str, schema: str, subscription: str, limit: int, after: int, **more: object
) -> list[RecordStatus]:
    """At most `limit` records above id `after` that the query `name` finds, by id.

    Planner settings make the server scan the primary key in order up to the limit.
    """
    with conn.transaction():
        rows(conn, "stats_plan", schema, limit=None)
        values = {"subscription": subscription, "limit": limit, "after": after, **more}
        return records(conn, _build_status, name, schema, **values)


def _build_status(*row: Any) -> RecordStatus:
    values = (*row[:-1], masked_or_none(row[-1]))
    return RecordStatus(*values)
