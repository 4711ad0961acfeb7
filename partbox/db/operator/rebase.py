"""Make a logical copy of a schema belong to this cluster, in one transaction. See `sql/queries/rebase.sql`. The cursors
of a copy contain transaction ids of the other cluster, which mean nothing here."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from psycopg import IsolationLevel

from partbox.db.deadline import allow_long_statements
from partbox.db.operator.actions import LongAction
from partbox.db.sql import Conn, fetch_records, fetch_rows, load_query
from partbox.errors import PartboxError

LOCK_TIMEOUT = "3s"
"""The time limit of one attempt to get a lock. An autovacuum gives way after `deadlock_timeout`, which is shorter."""

Problem = Literal["healthy", "workers"]


class KnownInstance(NamedTuple):
    """A worker process of any subscription. `lease_left` is the rest of its lease in seconds, by the database's
    clock."""

    instance_id: UUID
    node: str
    pid: int
    subscription: str
    heartbeat_at: datetime
    lease_left: float
    lease: float


@dataclass(frozen=True, slots=True)
class RebasedSubscription:
    """The changes to one subscription when a copied schema is adapted to this database cluster (a rebase).

    - `cursors`: the number of cursors that were moved to this cluster
    - `parked`: the number of late records that were parked (set aside) for the subscription"""

    subscription: str
    cursors: int
    parked: int


@dataclass(frozen=True, slots=True)
class Rebased:
    """The changes that a rebase has made to adapt a copied schema to this database cluster.

    - `records`: the number of records that got a transaction id that counts as ended
    - `instances`: the number of instances deleted
    - `last_id`, `next_after`: the id sequence before and after. If it was lower before, it was behind ids in use."""

    subscriptions: tuple[RebasedSubscription, ...]
    records: int
    instances: int
    last_id: int
    next_after: int


def is_healthy(conn: Conn, schema: str) -> bool:
    """Return whether the schema belongs to this database cluster, rather than being copied from another."""
    # A healthy schema needs no rebase.
    # The cursors of subscriptions were written in the schema's cluster.
    row = conn.execute(load_query("marker", schema), {}).fetchone()
    return bool(row and row[1])


def list_instances(conn: Conn, schema: str) -> list[KnownInstance]:
    return fetch_records(conn, KnownInstance, "rebase_instances", schema)


def rebase_schema(conn: Conn, schema: str, dead: Mapping[UUID, datetime], *, force: bool) -> Rebased | Problem:
    """Adapt a schema copied from another database cluster. Return the changes, or the obstacle.

    The obstacle is "healthy" if the cursors were written in this cluster and `force` is not set, and "workers" if an
    instance is not in `dead`, or has sent a heartbeat after the one noted there. Raise
    `psycopg.errors.LockNotAvailable`, with nothing changed, if a lock is held for longer than `LOCK_TIMEOUT`, and
    `PartboxError` if a trigger or rule may undo changes."""
    conn.isolation_level = IsolationLevel.READ_COMMITTED
    with allow_long_statements(conn), conn.transaction():
        heartbeats = _take_locks(conn, schema)
        if not force and is_healthy(conn, schema):
            return "healthy"
        if any(dead.get(instance) != heartbeat for instance, heartbeat in heartbeats.items()):
            return "workers"
        # A trigger or rule that keeps rows as they are would let cursors pass records that nobody has read.
        for table, kind, name, _, drops in fetch_rows(conn, "doctor_triggers", schema):
            if drops:
                raise PartboxError(
                    f"the {kind} {name} on table {table} may suppress changes of rows: drop the {kind} for the rebase"
                )
        return _move_cursors(conn, schema)


def _take_locks(conn: Conn, schema: str) -> dict[UUID, datetime]:
    # Take all locks for a rebase, and return the heartbeats of the worker processes found.
    # The purge, the records, the instances and the partitions are locked, in this order.
    conn.execute(load_query("rebase_patience", schema), {"lock": LOCK_TIMEOUT})
    for name in ("row_security_off", "rebase_lock_purge", "rebase_lock_records"):
        conn.execute(load_query(name, schema), {})
    heartbeats = dict(conn.execute(load_query("rebase_lock_instances", schema), {}).fetchall())
    conn.execute(load_query("rebase_lock_partitions", schema), {})
    return heartbeats


def _move_cursors(conn: Conn, schema: str) -> Rebased:
    """Convert the read positions of subscriptions in a copied schema, and raise its id sequence."""
    # All locks are held. The sequence comes late, since no rollback restores it.
    parked = dict(conn.execute(load_query("rebase_park", schema), {}).fetchall())
    aged = conn.execute(load_query("rebase_records", schema), {}).rowcount
    moved = conn.execute(load_query("rebase_cursors", schema), {}).fetchall()
    instances = conn.execute(load_query("rebase_forget", schema), {}).rowcount
    conn.execute(load_query("rebase_notes", schema), {})
    last_id, next_after = conn.execute(load_query("rebase_sequence", schema), {}).fetchone() or (0, 0)
    conn.execute(load_query("rebase_unmark", schema), {})
    conn.execute(load_query("rebase_mark", schema), {})
    LongAction(schema, "rebase", {"records": aged, "instances": instances, "subscriptions": dict(moved)}).add_changes(
        conn, 1
    )
    subscriptions = tuple(RebasedSubscription(name, cursors, parked.get(name, 0)) for name, cursors in moved)
    return Rebased(subscriptions, aged, instances, last_id, next_after)
