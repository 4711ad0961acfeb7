"""The SQL statements of chaos runs, one function each, with their texts in sql/chaos.sql."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import Connection

from partbox.db.delivery import bell
from partbox.db.schema.grants import Roles
from partbox.db.schema.migrate import migrate
from partbox.protocol.bell import RING_ALL
from partbox_lab.sql import query

Row = tuple[Any, ...]
Conn = Connection[Any]


def make_accounts(conn: Conn, schema: str) -> None:
    """Create the tables of a run: accounts that number events, and notes of published events."""
    conn.execute(query("chaos_accounts", schema), {})
    conn.execute(query("chaos_published", schema), {})


def is_there(conn: Conn, schema: str) -> tuple[bool, bool]:
    """Return whether the schema exists, and whether `partbox chaos` made it."""
    return conn.execute(query("chaos_found", schema), {"schema": schema}).fetchone() or (False, False)


def has_living(conn: Conn, schema: str, seconds: float) -> bool:
    """Return True if an instance had a heartbeat within the last `seconds`."""
    return conn.execute(query("chaos_living", schema), {"seconds": seconds}).fetchone() != (0,)


def allows_two_phase(conn: Conn, schema: str) -> bool:
    """Return True if the server permits prepared transactions."""
    return conn.execute(query("chaos_allows", schema), {}).fetchone() != (0,)


def open_accounts(conn: Conn, schema: str, names: Sequence[str]) -> None:
    """Insert accounts that start at 0."""
    conn.execute(query("chaos_open_accounts", schema), {"names": names})


def raise_numbers(conn: Conn, schema: str, names: Sequence[str], burst: int) -> list[tuple[str, int]]:
    """Lock accounts and add `burst` to the number of each. Return names and new numbers."""
    return conn.execute(query("chaos_raise", schema), {"names": list(names), "burst": burst}).fetchall()


def insert(conn: Conn, schema: str, **values: object) -> str:
    """Insert an event by plain SQL (`event_type`, `kind`, `name`, `seq`, `size`) and return its event id."""
    ((event,),) = conn.execute(query("chaos_insert", schema), values).fetchall()
    return str(event)


def leap(conn: Conn, schema: str, ids: int) -> None:
    """Use up record ids at once. Ids that others draw meanwhile are lower."""
    conn.execute(query("chaos_leap", schema), {"ids": ids})


def log(conn: Conn, schema: str) -> list[Row]:
    """Return event id, aggregate, and sequence number of the records in the log, in the order of ids."""
    return conn.execute(query("chaos_log", schema), {}).fetchall()


def note(conn: Conn, schema: str, events: Sequence[Row]) -> None:
    """Note published events in the current transaction. Rows are event id, aggregate, and sequence number."""
    ids, aggregates, numbers = map(list, zip(*events, strict=True))
    conn.execute(query("chaos_note", schema), {"events": ids, "aggregates": aggregates, "numbers": numbers})


def noted(conn: Conn, schema: str) -> list[Row]:
    """Return the noted events as `note` took them."""
    return conn.execute(query("chaos_noted", schema), {}).fetchall()


def instances(conn: Conn, schema: str) -> list[Row]:
    """Return the instances: id, node, pid, and seconds since the last heartbeat."""
    return conn.execute(query("chaos_instances", schema), {}).fetchall()


def cursors(conn: Conn, schema: str) -> list[Row]:
    """Return cursor, epoch, floor, and owner of each partition, as `StoredCursor` takes them."""
    return conn.execute(query("chaos_cursors", schema), {}).fetchall()


def left(conn: Conn, schema: str) -> int:
    """Return the number of records that are not done, including parked records."""
    ((count,),) = conn.execute(query("chaos_left", schema), {}).fetchall()
    return int(count)


def sessions(conn: Conn, schema: str, name: str) -> list[int]:
    """Return the pids of the sessions with an application name."""
    return [pid for (pid,) in conn.execute(query("chaos_sessions", schema), {"name": name})]


def cut(conn: Conn, schema: str, pid: int) -> None:
    """Terminate a session."""
    conn.execute(query("chaos_cut", schema), {"pid": pid})


def strike(conn: Conn, schema: str, pid: int) -> bool:
    """Terminate a session if it keeps all others out of a table, and return True if it did."""
    return conn.execute(query("chaos_strike", schema), {"pid": pid}).fetchone() is not None


def wait(conn: Conn, schema: str, seconds: float) -> None:
    """Sleep in the server for some seconds."""
    conn.execute(query("chaos_wait", schema), {"seconds": seconds})


def write_wal(conn: Conn, schema: str, size: int) -> None:
    """Write some bytes of WAL and nothing else."""
    conn.execute(query("chaos_wal", schema), {"size": size})


def left_over(conn: Conn, schema: str) -> list[str]:
    """Return a sentence for each table, constraint, or record that a purge should have removed."""
    return [what for (what,) in conn.execute(query("chaos_left_over", schema), {"schema": schema})]


def prepared(conn: Conn, schema: str, prefix: str) -> list[str]:
    """Return the identifiers of the prepared transactions that begin with a prefix."""
    return [gid for (gid,) in conn.execute(query("chaos_prepared", schema), {"prefix": prefix}).fetchall()]


def set_flag(conn: Conn, schema: str, ahead: int | None) -> None:
    """Raise the bell's flag for `ahead` milliseconds, or lower it for None. Without a flag this does nothing."""
    conn.execute(query("chaos_flag", schema), {"ahead": ahead})


def ring(conn: Conn, schema: str) -> None:
    """Ring the bell for all workers."""
    bell.notify_listeners(conn, schema, RING_ALL)


def lower_flag(conn: Conn, schema: str) -> None:
    """Lower the bell's flag, so that publishers believe nobody sleeps."""
    set_flag(conn, schema, None)


def hold_flag(conn: Conn, schema: str) -> None:
    """Raise the bell's flag for almost a second, so that publishers believe a worker sleeps."""
    set_flag(conn, schema, 900)


# Faults that repeat one statement, by name.
TAMPERS: dict[str, Callable[[Conn, str], None]] = {
    "bell-deaf": lower_flag,
    "bell-storm": ring,
    "bell-stuck": hold_flag,
}


# The role of the nodes, on a server of the run's own.
NODES = "partbox_chaos_nodes"
QUEUED = 17_00_00  # the first server version with a setting for the queue's size


def make_role(dsn: str, conn: Conn, schema: str) -> None:
    """Create the role of the nodes and grant it a worker's rights."""
    conn.execute(query("chaos_role", schema), {})
    migrate(dsn, schema, roles=Roles(workers=(NODES,)))


def change_rights(conn: Conn, schema: str, change: str, relation: str, what: str) -> None:
    """Change the rights of the nodes' role or restart a sequence, by a case of `chaos_change` such as "take"."""
    conn.execute(query("chaos_change", schema), {"change": change, "relation": relation, "what": what})
    conn.execute(query("chaos_apply", schema))


def small_queue(conn: Conn, schema: str) -> None:
    """Shrink the server's notification queue from its next start on."""
    conn.execute(query("chaos_small_queue", schema))


def fill_queue(stuck: Conn, conn: Conn, schema: str) -> None:
    """Fill the notification queue. `stuck` listens in an open transaction, which keeps all notifications there."""
    stuck.execute(query("chaos_listen", schema))
    stuck.autocommit = False
    stuck.execute(query("chaos_stay", schema))
    # This error says that the queue is full.
    with suppress(psycopg.OperationalError):
        while True:
            conn.execute(query("chaos_notify", schema))


def written(conn: Conn, schema: str) -> str:
    """Return the position up to which WAL is flushed."""
    ((position,),) = conn.execute(query("chaos_written", schema)).fetchall()
    return str(position)


def replayed(conn: Conn, schema: str, position: str) -> bool:
    """Return True if a standby has replayed the WAL up to a position."""
    return conn.execute(query("chaos_replayed", schema), {"position": position}).fetchone() is not None


def promote(conn: Conn, schema: str) -> None:
    """Promote a standby and wait for that."""
    conn.execute(query("chaos_promote", schema))
