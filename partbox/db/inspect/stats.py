"""The state of the subscriptions at one moment: processes, partitions, backlog, and records by status."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import tuple_row

from partbox.db.delivery import limits, traffic
from partbox.db.delivery.instances import LifespanState, parse_lifespan, parse_running

# Imported under its own name so that this module exports it beside `Instance`.
from partbox.db.delivery.instances import RunningHandler as RunningHandler
from partbox.db.delivery.limits import HandlerLimit, HeldReport, LimitReport
from partbox.db.delivery.traffic import SinkTraffic
from partbox.db.operator.subscriptions import Subscription
from partbox.db.schema.migrate import list_subscription_names
from partbox.db.sql import Conn, fetch_records, fetch_rows, load_query
from partbox.errors import SchemaError
from partbox.text.secrets import mask_optional
from partbox.text.wording import format_no_subscription

EXACT_UP_TO: Final = 10_000  # pending records of a partition that are counted; beyond that they are estimated
EXACT_OF_LIST: Final = 100  # the same in a list of subscriptions
STATES: Final = ("retrying", "deferred", "scheduled", "held", "ready", "dead", "discarded")
MAX_LISTED: Final = 50  # subscriptions whose partitions an overview lists
FEW_LISTED: Final = 5  # the same where sums are enough for the others
FINAL_STATES: Final = ("dead", "discarded")  # no longer attempted


@dataclass(frozen=True, slots=True)
class Instance:
    """A worker process as registered in the database. Ages and the lease are in seconds.

    - `partitions`: the number of partitions that it owns
    - `supervisor`: the start of the node that it belongs to, None if unknown
    - `running`: handlers that have run for over ten seconds, the longest first. `running_more`: further ones.
    - `sinks`: its traffic with brokers
    - `limits`, `held`: the limits that it keeps, and what it holds back, as reported `limits_age` seconds ago
    - `lifespan`: set while the process is in its lifespan and does not work yet"""

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
    held: tuple[HeldReport, ...] = ()
    limits_age: float | None = None
    lifespan: LifespanState | None = None

    @property
    def expired(self) -> bool:
        """True if the worker process has sent no heartbeat within its lease and is about to be declared dead."""
        return self.heartbeat_age > self.lease

    @property
    def state(self) -> str:
        """The state of the worker process in a word: "expired", "starting", "draining" or "working"."""
        if self.expired:
            return "expired"
        return "starting" if self.lifespan is not None else "draining" if self.draining else "working"


@dataclass(frozen=True, slots=True)
class PartitionStats:
    """A subscription's progress and backlog in one partition, and the partition's owner. Ages are in seconds.

    - `pending`: records that it has not consumed, estimated unless `exact`. The oldest has `oldest_age`.
    - `claimed_age`: since it was last claimed, None if never
    - `saved_age`: since the last save that recorded progress
    - `suspect`: its last owner died, and the record that may have killed it is not passed yet
    - `fill`: above `last_id`, the number of ids per record of this partition
    - `parked_age`: how long ago a parked record should have been delivered. Dead and future ones do not count."""

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
        """The seconds that the oldest unfinished event has been waiting. None if there is none."""
        # An unfinished event is unread or parked (set aside).
        return _max_age(self.oldest_age, self.parked_age)


@dataclass(frozen=True, slots=True)
class PartitionSums:
    """The backlog of a subscription, summed over all its partitions. Ages are in seconds."""

    partitions: int
    unowned: int
    pending: int
    pending_max: int
    exact: bool
    oldest_age: float | None
    parked_age: float | None

    @property
    def unfinished_age(self) -> float | None:
        """The seconds that the oldest unfinished event has been waiting. None if there is none."""
        # An unfinished event is unread or parked (set aside).
        return _max_age(self.oldest_age, self.parked_age)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The state of a subscription at one moment: its processes, partitions and numbers of unfinished events.

    - `parked`: parked records by state, which are not pending
    - `completed`: an estimate of the records in the log that it is done with
    - `blocked_keys`: aggregates whose events wait for an event that cannot be finished
    - `segments_ahead`: segments of the log, shared by all subscriptions, that begin above the newest id
    - `unlisted`: the sums of its partitions if an overview of many subscriptions does not list them, else None"""

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
        """The number of failed or waiting events that will be tried again, by state."""
        # Dead and discarded events are not among them.
        return {state: count for state, count in self.parked.items() if state not in FINAL_STATES}

    @property
    def sums(self) -> PartitionSums:
        """The backlog of the subscription, summed over all its partitions."""
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
        """The number of the subscription's partitions that no living worker process owns."""
        return self.sums.unowned

    @property
    def sinks(self) -> list[SinkTraffic]:
        """The message counts of the subscription's processes, by broker or other sink."""
        # They count from the start of the processes.
        return traffic.merge_traffic(each for instance in self.instances for each in instance.sinks)

    @property
    def pending(self) -> int:
        """The number of records that the subscription has not consumed yet, in all partitions."""
        return self.sums.pending

    @property
    def pending_max(self) -> int:
        """The number of records not consumed yet in the partition that has the most of them."""
        return self.sums.pending_max

    @property
    def exact(self) -> bool:
        """True if `pending` is an exact count, False if it is an estimate."""
        # Beyond 10,000 records in a partition the number is estimated.
        return self.sums.exact

    @property
    def oldest_age(self) -> float | None:
        """The seconds since the oldest unread record was published. None if the subscription has read all."""
        return self.sums.oldest_age

    @property
    def unfinished_age(self) -> float | None:
        """The seconds that the oldest unfinished event has been waiting. None if there is none."""
        # An unfinished event is unread or parked (set aside).
        return self.sums.unfinished_age

    @property
    def records(self) -> dict[str, int]:
        """The number of records in the log by their delivery status, such as pending, completed or dead."""
        # Besides pending and completed, the status is a state of parked records. States without records have zero.
        parked = {state: self.parked.get(state, 0) for state in STATES}
        return {"pending": self.pending, "completed": self.completed, **parked}


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """A record and its delivery status in a subscription, such as pending, completed or dead.

    - `status`: pending, completed, or the state in which the record is parked
    - `attempts`, `last_error`: belong to parked records
    - `event_id`, `created_at`: None only if a parked record was removed from the log"""

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
    """The state of all subscriptions of a schema at one moment.

    - `at`: the moment, by the database's clock
    - `clusters`: the subscriptions by name
    - `newest_id`: the highest record id that was drawn, also by transactions that were rolled back"""

    schema: str
    at: datetime
    clusters: tuple[Cluster, ...]
    newest_id: int = 0
    database: str = ""

    def cluster(self, subscription: str) -> Cluster:
        """Return the state of a subscription by its name. Raise `SchemaError` if there is none."""
        # The error names all others.
        for each in self.clusters:
            if each.subscription == subscription:
                return each
        raise SchemaError(
            format_no_subscription(subscription, self.schema, [each.subscription for each in self.clusters])
        )


def read_overview(
    conn: Conn,
    schema: str,
    subscription: str | None = None,
    *,
    patience: float | None = None,
    exact_up_to: int = EXACT_UP_TO,
    named: Collection[str] = (),
    working: bool = False,
    listed: int = MAX_LISTED,
) -> Overview:
    """Read the state of all subscriptions, or of one: processes, partitions, backlog and failed events.

    Partitions are listed for `listed` subscriptions: first the `named`, then subscriptions with processes. With
    `working` they are listed for all subscriptions with processes. Raise `psycopg.errors.QueryCanceled` after
    `patience` seconds, or the session's `statement_timeout`."""
    # One SQL statement reads it, with all parked records. A single subscription is read if it exists.
    limit = None if patience is None else str(max(1, int(patience * 1000)))
    values: dict[str, Any] = {"subscription": subscription, "limit": exact_up_to, "named": [*named]}
    values |= {"listed": listed, "working": working}
    with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(load_query("stats_plan", schema), {"limit": limit})
        found = cursor.execute(load_query("stats_overview", schema), values).fetchall()
    at, database, newest_id, *log = found[0][:5]
    clusters = (_build_cluster(schema, at, log, row) for _, _, _, _, _, *row in found if row[0] is not None)
    return Overview(schema, at, tuple(clusters), newest_id, database)


def read_cluster(conn: Conn, schema: str, subscription: str) -> Cluster:
    """Read the state of one subscription. Raise `SchemaError` if it does not exist."""
    # One SQL statement reads processes, partitions, backlog and parked records.
    found = read_overview(conn, schema, subscription).clusters
    if not found:
        raise SchemaError(format_no_subscription(subscription, schema, list_subscription_names(conn, schema)))
    return found[0]


def _build_cluster(schema: str, at: datetime, log: list[int], row: list[Any]) -> Cluster:
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
        limits=limits.merge_limits(
            name,
            (limit for each in members for limit in each.limits),
            limits.parse_changes(changed),
            (held for each in members for held in each.held),
        ),
    )


def _build_instance(row: dict[str, Any], at: datetime) -> Instance:
    running, more = parse_running(row["running"], at)
    known = _clamp_ages(_parse_uuids(row, "instance_id", "supervisor"))
    reports = {"sinks": traffic.parse_column(row["sinks"]), "limits": limits.parse_column(row["limits"])}
    reports["held"] = limits.parse_held(row["held"])
    lifespan = parse_lifespan(row["running"], at)
    return Instance(**known | reports | {"running": running, "running_more": more, "lifespan": lifespan})


def _parse_uuids(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    return row | {column: row[column] and UUID(row[column]) for column in columns}


def _clamp_ages(row: dict[str, Any]) -> dict[str, Any]:
    # The ages become floats of at least 0. The age of a row that was written after the statement began would be
    # negative.
    ages = {name: age if age is None else max(0.0, float(age)) for name, age in row.items() if name.endswith("age")}
    return row | ages


def _max_age(*ages: float | None) -> float | None:
    return max((age for age in ages if age is not None), default=None)


def list_subscriptions(conn: Conn, schema: str) -> list[Subscription]:
    """Return all subscriptions of the schema by name, each with its number of processes and its backlog."""
    types = dict(conn.execute(load_query("subscription_types", schema), {}).fetchall())
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
        for each in read_overview(conn, schema, exact_up_to=EXACT_OF_LIST, listed=FEW_LISTED).clusters
    ]


def load_page(
    conn: Conn, name: str, schema: str, subscription: str, limit: int, after: int, **more: object
) -> list[RecordStatus]:
    """Load one page of records with their delivery status: at most `limit`, with ids above `after`."""
    # The query `name` finds them, by id. Planner settings make the server read the primary key in order up to the
    # limit.
    with conn.transaction():
        fetch_rows(conn, "stats_plan", schema, limit=None)
        values = {"subscription": subscription, "limit": limit, "after": after, **more}
        return fetch_records(conn, _build_status, name, schema, **values)


def _build_status(*row: Any) -> RecordStatus:
    values = (*row[:-1], mask_optional(row[-1]))
    return RecordStatus(*values)
