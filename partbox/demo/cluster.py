"""What the database says about the worker processes and their partitions, at one moment."""

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.db.sql import query


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process that lives, as far as the cluster knows; ages in seconds."""

    instance: UUID
    pid: int
    node: str
    draining: bool
    age: float
    heartbeat_age: float
    owned: int
    assigned: int


@dataclass(frozen=True, slots=True)
class Sight:
    """`owners` has the pid that owns each partition, or None; `claimed` is when one was last claimed, monotonic."""

    at: float
    processes: tuple[Process, ...]
    owners: tuple[int | None, ...]
    epochs: tuple[int, ...]
    claimed: float
    settled: bool

    @property
    def pids(self) -> set[int]:
        return {process.pid for process in self.processes}


def look(conn: Connection[Any], schema: str) -> Sight:
    """Look at the cluster: one statement."""
    row = conn.execute(query("demo_cluster", schema), {}).fetchone()
    assert row is not None  # an aggregate
    instances, owners, assignees, epochs, since_claim = row
    at = time.monotonic()
    pids = {UUID(each["instance_id"]): each["pid"] for each in instances}
    return Sight(
        at=at,
        processes=tuple(_process(each, owners, assignees) for each in instances),
        owners=tuple(pids.get(owner) for owner in owners),
        epochs=tuple(epochs),
        claimed=at - (since_claim or 0.0),
        settled=owners == assignees
        and all(owner in pids for owner in owners)
        and not any(each["draining"] for each in instances),
    )


def _process(row: dict[str, Any], owners: list[UUID | None], assignees: list[UUID | None]) -> Process:
    instance = UUID(row["instance_id"])
    return Process(
        instance=instance,
        pid=row["pid"],
        node=row["node"],
        draining=row["draining"],
        age=row["age"],
        heartbeat_age=row["heartbeat_age"],
        owned=owners.count(instance),
        assigned=assignees.count(instance),
    )
