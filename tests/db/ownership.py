"""A subscription's instances and partitions as their processes see them, for the tests of ownership."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from waiting import eventually

from partbox.db.connect import connect
from partbox.db.delivery import cursors, instances
from partbox.protocol.rows import CursorSave, OwnedPartition

Conn = psycopg.Connection[Any]

SCHEMA = "partbox"
DEFAULT = "default"
ALL = range(256)
LEASE = 20.0


def worker(dsn: str, lease: float = LEASE) -> Conn:
    """A connection as worker processes and supervisors have it."""
    return connect(dsn, lease=lease, name="partbox test", prepared=True)


def join(conn: Conn, count: int = 1, *, node: str = "n1", subscription: str = DEFAULT) -> list[UUID]:
    """Register that many instances."""
    return list(
        instances.register_instances(
            conn,
            SCHEMA,
            subscription=subscription,
            node=node,
            hostname="host",
            pids=range(1, count + 1),
            version="0",
            lease=LEASE,
        ).values()
    )


def assign(conn: Conn, instance: UUID | None, partitions: Sequence[int] = ALL) -> None:
    conn.execute("update partbox.partition set assignee = %s where partition = any (%s)", [instance, list(partitions)])


def claim(conn: Conn, me: UUID) -> list[OwnedPartition]:
    return cursors.claim_partitions(conn, SCHEMA, DEFAULT, me)


def seize(conn: Conn, me: UUID, partitions: Sequence[int] = ALL) -> dict[int, OwnedPartition]:
    """Have these partitions assigned and claimed."""
    assign(conn, me, partitions)
    return {row.partition: row for row in claim(conn, me)}


def bury(conn: Conn, victims: Sequence[UUID] = (), *, known_dead: bool = False) -> tuple[list[UUID], int]:
    return instances.bury_instances(conn, SCHEMA, victims, known_dead=known_dead)


def save(conn: Conn, me: UUID, savings: Sequence[CursorSave], *args: Any, **kwargs: Any) -> set[int]:
    """The partitions that are still mine."""
    return cursors.save(conn, SCHEMA, DEFAULT, me, savings, *args, **kwargs)[0]


def saving(
    row: OwnedPartition,
    snapshot: str | None = "5:5:",
    last_id: int | None = 3,
    floor_id: int | None = 2,
    *,
    release: bool = False,
) -> CursorSave:
    return CursorSave(row.partition, row.epoch, snapshot, last_id, floor_id, release)


def expire(conn: Conn, *who: UUID) -> None:
    """Let their leases be over by the database's clock."""
    conn.execute(
        "update partbox.instance set heartbeat_at = clock_timestamp() - lease - interval '1 second'"
        " where instance_id = any (%s)",
        [list(who)],
    )


def owners(conn: Conn) -> dict[int, UUID]:
    """The owner of each partition that has one."""
    rows = conn.execute("select partition, owner from partbox.partition where owner is not null").fetchall()
    return dict(rows)


def orphans(conn: Conn) -> int:
    """How many partitions belong to an instance that does not exist."""
    row = conn.execute(
        "select count(*) from partbox.partition p where owner is not null"
        " and not exists (select from partbox.instance i where i.instance_id = p.owner)"
    ).fetchone()
    return int(row[0]) if row else 0


def blockers(observer: Conn, conn: Conn) -> list[int]:
    """The pids of the backends that this connection's backend waits for."""
    row = observer.execute("select pg_blocking_pids(%s)", [conn.info.backend_pid]).fetchone()
    return row[0] if row else []


def blocked(observer: Conn, conn: Conn) -> None:
    """Wait until this connection waits for a lock of another."""
    eventually(lambda: blockers(observer, conn))


@contextmanager
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Calls functions in threads of their own; waits for them at the end."""
    with ThreadPoolExecutor(20) as pool:
        yield pool.submit
