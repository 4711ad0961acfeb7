"""Statements of a chaos run: its accounts, its view of the cluster, and the sessions that it cuts."""

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
    """Create the table of the aggregates that number their own events, and the one of what was published."""
    conn.execute(query("chaos_accounts", schema), {})
    conn.execute(query("chaos_published", schema), {})


def is_there(conn: Conn, schema: str) -> tuple[bool, bool]:
    """True if the schema exists, and true if a chaos run made it."""
    return conn.execute(query("chaos_found", schema), {"schema": schema}).fetchone() or (False, False)


def has_living(conn: Conn, schema: str, seconds: float) -> bool:
    """True if an instance has shown life within so many seconds."""
    return conn.execute(query("chaos_living", schema), {"seconds": seconds}).fetchone() != (0,)


def allows_two_phase(conn: Conn, schema: str) -> bool:
    """True if the server allows prepared transactions."""
    return conn.execute(query("chaos_allows", schema), {}).fetchone() != (0,)


def open_accounts(conn: Conn, schema: str, names: Sequence[str]) -> None:
    """Insert accounts of these names."""
    conn.execute(query("chaos_open_accounts", schema), {"names": names})


def raise_numbers(conn: Conn, schema: str, names: Sequence[str], burst: int) -> list[tuple[str, int]]:
    """Lock these accounts in order and raise their numbers by `burst`; each name with its new number."""
    return conn.execute(query("chaos_raise", schema), {"names": list(names), "burst": burst}).fetchall()


def insert(conn: Conn, schema: str, **values: object) -> str:
    """Insert an event by SQL (`event_type`, `kind`, `name`, `seq`, `size`); its id."""
    ((event,),) = conn.execute(query("chaos_insert", schema), values).fetchall()
    return str(event)


def leap(conn: Conn, schema: str, ids: int) -> None:
    """Use up so many ids of the log at once."""
    conn.execute(query("chaos_leap", schema), {"ids": ids})


def log(conn: Conn, schema: str) -> list[Row]:
    """Every event of the log in order: `(event id, aggregate, number)`."""
    return conn.execute(query("chaos_log", schema), {}).fetchall()


def note(conn: Conn, schema: str, events: Sequence[Row]) -> None:
    """Note events that were published: `(event id, aggregate, number)`."""
    ids, aggregates, numbers = map(list, zip(*events, strict=True))
    conn.execute(query("chaos_note", schema), {"events": ids, "aggregates": aggregates, "numbers": numbers})


def noted(conn: Conn, schema: str) -> list[Row]:
    """Every event that was noted: `(event id, aggregate, number)`."""
    return conn.execute(query("chaos_noted", schema), {}).fetchall()


def instances(conn: Conn, schema: str) -> list[Row]:
    """The members of the cluster: `(id, node, pid, seconds since the last heartbeat)`."""
    return conn.execute(query("chaos_instances", schema), {}).fetchall()


def cursors(conn: Conn, schema: str) -> list[Row]:
    """The cursor of each partition: `(partition, epoch, last id, floor, xmax, owned)`."""
    return conn.execute(query("chaos_cursors", schema), {}).fetchall()


def left(conn: Conn, schema: str) -> int:
    """The number of records that are not done, parked ones among them."""
    ((count,),) = conn.execute(query("chaos_left", schema), {}).fetchall()
    return int(count)


def sessions(conn: Conn, schema: str, name: str) -> list[int]:
    """The backends of the sessions whose application has this name."""
    return [pid for (pid,) in conn.execute(query("chaos_sessions", schema), {"name": name})]


def cut(conn: Conn, schema: str, pid: int) -> None:
    """End a session."""
    conn.execute(query("chaos_cut", schema), {"pid": pid})


def strike(conn: Conn, schema: str, pid: int) -> bool:
    """End a session if it keeps everybody out of some table; True if it did."""
    return conn.execute(query("chaos_strike", schema), {"pid": pid}).fetchone() is not None


def wait(conn: Conn, schema: str, seconds: float) -> None:
    """Wait in the database."""
    conn.execute(query("chaos_wait", schema), {"seconds": seconds})


def write_wal(conn: Conn, schema: str, size: int) -> None:
    """Write so many bytes of WAL and nothing else."""
    conn.execute(query("chaos_wal", schema), {"size": size})


def left_over(conn: Conn, schema: str) -> list[str]:
    """The faults of the segments when everything is done and was purged, a line each."""
    return [what for (what,) in conn.execute(query("chaos_left_over", schema), {"schema": schema})]


def prepared(conn: Conn, schema: str, prefix: str) -> list[str]:
    """The prepared transactions of this database whose names begin so."""
    return [gid for (gid,) in conn.execute(query("chaos_prepared", schema), {"prefix": prefix}).fetchall()]


def set_flag(conn: Conn, schema: str, ahead: int | None) -> None:
    """Raise the bell's flag for so many milliseconds; None: lower it. Nothing where there is none."""
    conn.execute(query("chaos_flag", schema), {"ahead": ahead})


def ring(conn: Conn, schema: str) -> None:
    """Ring for all workers."""
    bell.notify(conn, schema, RING_ALL)


def lower_flag(conn: Conn, schema: str) -> None:
    """Lower the bell's flag."""
    set_flag(conn, schema, None)


def hold_flag(conn: Conn, schema: str) -> None:
    """Raise the bell's flag."""
    set_flag(conn, schema, 900)


TAMPERS: dict[str, Callable[[Conn, str], None]] = {
    "bell-deaf": lower_flag,
    "bell-storm": ring,
    "bell-stuck": hold_flag,
}
"""By the fault, what is to be done again and again."""


NODES = "partbox_chaos_nodes"
"""The role of the nodes of a run on its own server."""
QUEUED = 17_00_00  # the first version whose queue of notifications can be made small


def make_role(dsn: str, conn: Conn, schema: str) -> None:
    """Create the role of the nodes, with what a worker needs."""
    conn.execute(query("chaos_role", schema), {})
    migrate(dsn, schema, roles=Roles(workers=(NODES,)))


def change_rights(conn: Conn, schema: str, change: str, relation: str, what: str) -> None:
    """Take or give a privilege, hide or show the rows of a table, limit the sessions of the nodes' role, or make a
    sequence anew."""
    conn.execute(query("chaos_change", schema), {"change": change, "relation": relation, "what": what})
    conn.execute(query("chaos_apply", schema))


def small_queue(conn: Conn, schema: str) -> None:
    """Let the queue of notifications have few pages, once the server has started again."""
    conn.execute(query("chaos_small_queue", schema))


def fill_queue(stuck: Conn, conn: Conn, schema: str) -> None:
    """Fill it by `conn`, while `stuck` listens in a transaction that stays open."""
    stuck.execute(query("chaos_listen", schema))
    stuck.autocommit = False
    stuck.execute(query("chaos_stay", schema))
    with suppress(psycopg.OperationalError):  # it is full
        while True:
            conn.execute(query("chaos_notify", schema))


def written(conn: Conn, schema: str) -> str:
    """The position up to which WAL was written."""
    ((position,),) = conn.execute(query("chaos_written", schema)).fetchall()
    return str(position)


def replayed(conn: Conn, schema: str, position: str) -> bool:
    """True if a standby has replayed the WAL up to this position."""
    return conn.execute(query("chaos_replayed", schema), {"position": position}).fetchone() is not None


def promote(conn: Conn, schema: str) -> None:
    """Make a standby a primary."""
    conn.execute(query("chaos_promote", schema))
