"""Makes a logical copy of a schema one of this cluster, in one transaction; see `sql/queries/rebase.sql`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from psycopg import IsolationLevel

from partbox.db.deadline import allow_long_statements
from partbox.db.operator.actions import LongAction
from partbox.db.sql import Conn, query, records, rows
from partbox.errors import PartboxError

LOCK_TIMEOUT = "3s"
"""How long a lock is waited for at a time. Longer than deadlock_timeout, after which an autovacuum gives way."""

Problem = Literal["healthy", "workers"]


class KnownInstance(NamedTuple):
    """An instance of the schema; `left` of its lease in seconds, by the database's clock."""

    instance_id: UUID
    node: str
    pid: int
    subscription: str
    heartbeat_at: datetime
    left: float
    lease: float


@dataclass(frozen=True, slots=True)
class RebasedSubscription:
    """A subscription: how many `cursors` were moved to this cluster, how many late records were `parked` for it."""

    subscription: str
    cursors: int
    parked: int


@dataclass(frozen=True, slots=True)
class Rebased:
    """The outcome. `records` got a transaction id that counts as ended; `instances` were forgotten.

    `last_id` is where the id sequence was found, and `next_after` where it is now; lower than that it was behind ids
    that are in use.
    """

    subscriptions: tuple[RebasedSubscription, ...]
    records: int
    instances: int
    last_id: int
    next_after: int


def healthy(conn: Conn, schema: str) -> bool:
    """True if these are the cursors of this cluster."""
    row = conn.execute(query("marker", schema), {}).fetchone()
    return bool(row and row[1])


def list_instances(conn: Conn, schema: str) -> list[KnownInstance]:
    """Every instance of any subscription."""
    return records(conn, KnownInstance, "rebase_instances", schema)


def rebase(conn: Conn, schema: str, dead: Mapping[UUID, datetime], *, force: bool) -> Rebased | Problem:
    """Rebase, or return what is in the way: it is healthy (unless `force`), or instances are not `dead` as seen.

    psycopg.errors.LockNotAvailable, with nothing changed, if a lock is held for longer than a moment.
    """
    conn.isolation_level = IsolationLevel.READ_COMMITTED
    with allow_long_statements(conn), conn.transaction():
        heartbeats = _take_locks(conn, schema)
        if not force and healthy(conn, schema):
            return "healthy"
        if any(dead.get(instance) != heartbeat for instance, heartbeat in heartbeats.items()):
            return "workers"
        # A trigger or rule of others may keep rows as they are: cursors would pass what is not seen.
        for table, kind, name, _, drops in rows(conn, "doctor_triggers", schema):
            if drops:
                raise PartboxError(
                    f"the {kind} {name} on table {table} may keep rows as they are: drop it for the rebase"
                )
        return _move_cursors(conn, schema)


def _take_locks(conn: Conn, schema: str) -> dict[UUID, datetime]:
    """Take all locks in order; returns the heartbeats found."""
    conn.execute(query("rebase_patience", schema), {"lock": LOCK_TIMEOUT})
    for name in ("row_security_off", "rebase_lock_purge", "rebase_lock_records"):
        conn.execute(query(name, schema), {})
    heartbeats = dict(conn.execute(query("rebase_lock_instances", schema), {}).fetchall())
    conn.execute(query("rebase_lock_partitions", schema), {})
    return heartbeats


def _move_cursors(conn: Conn, schema: str) -> Rebased:
    """Move cursors and sequence, under the locks; the sequence late, since no rollback restores it."""
    parked = dict(conn.execute(query("rebase_park", schema), {}).fetchall())
    aged = conn.execute(query("rebase_records", schema), {}).rowcount
    moved = conn.execute(query("rebase_cursors", schema), {}).fetchall()
    instances = conn.execute(query("rebase_forget", schema), {}).rowcount
    conn.execute(query("rebase_notes", schema), {})
    last_id, next_after = conn.execute(query("rebase_sequence", schema), {}).fetchone() or (0, 0)
    conn.execute(query("rebase_unmark", schema), {})
    conn.execute(query("rebase_mark", schema), {})
    LongAction(schema, "rebase", {"records": aged, "instances": instances, "subscriptions": dict(moved)}).count(conn, 1)
    subscriptions = tuple(RebasedSubscription(name, cursors, parked.get(name, 0)) for name, cursors in moved)
    return Rebased(subscriptions, aged, instances, last_id, next_after)
