"""What a subscription looks like right now: who works on it, who holds which partition, what is left to do."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection
from psycopg.rows import tuple_row

from partbox.db.sql import query
from partbox.errors import SchemaError

EXACT_UP_TO = 10_000


@dataclass(frozen=True, slots=True)
class Instance:
    """A worker process; ages and lease in seconds, `partitions` how many it owns."""

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

    @property
    def expired(self) -> bool:
        """Whether its lease is over: it is about to be buried."""
        return self.heartbeat_age > self.lease


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition; `pending` records it has not consumed (an estimate unless `exact`), the oldest this old (s)."""

    partition: int
    assignee: UUID | None
    owner: UUID | None
    epoch: int
    pending: int
    exact: bool
    oldest_age: float | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """One subscription at one moment; `parked` counts the parked records by state, which are not pending."""

    schema: str
    subscription: str
    paused: bool
    instances: tuple[Instance, ...]
    partitions: tuple[Partition, ...]
    parked: dict[str, int]

    @property
    def unowned(self) -> int:
        """Partitions that no living instance owns."""
        living = {instance.instance_id for instance in self.instances}
        return sum(partition.owner not in living for partition in self.partitions)

    @property
    def pending(self) -> int:
        return sum(partition.pending for partition in self.partitions)

    @property
    def pending_max(self) -> int:
        return max((partition.pending for partition in self.partitions), default=0)

    @property
    def exact(self) -> bool:
        """Whether `pending` was counted; beyond 10,000 records a partition it is estimated."""
        return all(partition.exact for partition in self.partitions)

    @property
    def oldest_age(self) -> float | None:
        """Seconds since the oldest pending record was published; None if nothing is pending."""
        return max((p.oldest_age for p in self.partitions if p.oldest_age is not None), default=None)


def subscriptions(conn: Connection[Any], schema: str) -> list[str]:
    """The names of all subscriptions; none of a writer-only outbox."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        return [name for (name,) in cursor.execute(query("stats_subscriptions", schema), {})]


def cluster(conn: Connection[Any], schema: str, subscription: str) -> Cluster:
    """The state of `subscription`, read in one statement; SchemaError if there is no such subscription."""
    values = {"subscription": subscription, "limit": EXACT_UP_TO}
    with conn.transaction(), conn.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(query("stats_plan", schema), {})
        row = cursor.execute(query("stats_cluster", schema), values).fetchone()
        paused, instances, partitions, parked = row or (None, [], [], {})
        if paused is None:
            names = subscriptions(conn, schema)
            there = f"there are {', '.join(names)}" if names else "there is none"
            raise SchemaError(f"subscription {subscription!r} does not exist in schema {schema!r}: {there}")
    return Cluster(
        schema=schema,
        subscription=subscription,
        paused=paused,
        instances=tuple(Instance(**_uuids(each, "instance_id")) for each in instances),
        partitions=tuple(Partition(**_uuids(each, "assignee", "owner")) for each in partitions),
        parked=parked,
    )


def _uuids(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    return row | {column: row[column] and UUID(row[column]) for column in columns}
