"""Statements of the bench. The SQL is in `partbox_lab/sql/bench.sql`."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection, ClientCursor, Connection, Cursor, ServerCursor

from partbox.db import statements
from partbox.db.blocking import use_raw_loaders
from partbox_lab.sql import query

Conn = Connection[Any]
Row = tuple[Any, ...]

ITERSIZE = 10_000  # rows per fetch


class ReadPosition(NamedTuple):
    """A position in the log. Events that are visible in the snapshot, up to the id, are consumed."""

    snapshot: str
    last_id: int


class BenchPartition(NamedTuple):
    """A partition with its owner."""

    partition: int
    owner: UUID
    epoch: int


class Backend(NamedTuple):
    """A server process. `began` is in Unix seconds by the server's clock."""

    pid: int
    began: float


def load(conn: Conn, schema: str, first: int, last: int) -> None:
    """Append records with these numbers."""
    conn.execute(query("bench_load", schema), {"first": first, "last": last})


def load_skewed(conn: Conn, schema: str, first: int, last: int) -> None:
    """Append records with these numbers: half in one aggregate, and most of the rest in a few others."""
    conn.execute(query("bench_load_skewed", schema), {"first": first, "last": last})


def load_large(conn: Conn, schema: str, events: int, payload: int) -> None:
    """Append records with payloads of `payload` bytes that do not compress."""
    conn.execute(query("bench_load_large", schema), {"events": events, "payload": payload})


def load_troubled(conn: Conn, schema: str, events: int, aggregates: int, delay: float | None = None) -> None:
    """Append records of a number of aggregates, which are due after `delay` seconds."""
    conn.execute(query("bench_load_troubled", schema), {"events": events, "aggregates": aggregates, "delay": delay})


def parked(conn: Conn, schema: str) -> int:
    """Return the number of parked rows."""
    return int(_number(conn, "bench_parked", schema))


def make_due(conn: Conn, schema: str) -> None:
    """Let all parked rows be due now."""
    conn.execute(query("bench_make_due", schema), {})


def fill_attempts(conn: Conn, schema: str, number: int) -> None:
    """Insert attempts of records that are gone."""
    conn.execute(query("bench_fill_attempts", schema), {"number": number})
    conn.execute(query("bench_note_purged", schema), {"number": number})


def leave_open(conn: Conn, number: int) -> None:
    """Prepare transactions that have an id, until this number of them is open."""
    ((there,),) = conn.execute(query("bench_prepared", "partbox"), {}).fetchall()
    for at in range(there, number):
        with ClientCursor(conn) as cursor:
            cursor.execute(query("bench_leave_open", "partbox"), {"name": f"bench {at}"})


def vacuum(conn: Conn, schema: str) -> None:
    """Vacuum and analyze the log."""
    conn.execute(query("bench_vacuum", schema), {})


def clear(conn: Conn, schema: str) -> None:
    """Remove every record."""
    conn.execute(query("bench_clear", schema), {})


def rewind(conn: Conn, schema: str, position: ReadPosition) -> None:
    """Set all cursors to `position`, without owners, and delete the parked rows."""
    with conn.transaction():
        conn.execute(query("bench_rewind", schema), position._asdict())
        conn.execute(query("bench_unpark", schema), {})


def position(conn: Conn, schema: str) -> ReadPosition:
    """Return the current end of the log."""
    ((snapshot, last_id),) = conn.execute(query("bench_position", schema), {}).fetchall()
    return ReadPosition(snapshot, last_id)


def drained(conn: Conn, schema: str) -> float:
    """Return the seconds from the first claim of a partition to the last save."""
    return _number(conn, "bench_drained", schema)


def owners(conn: Conn, schema: str) -> list[BenchPartition]:
    """Return the partitions that have an owner, in order."""
    return [BenchPartition(*row) for row in conn.execute(query("bench_owners", schema), {})]


def owned(conn: Conn, schema: str) -> int:
    """Return the number of partitions that have an owner."""
    return int(_number(conn, "bench_owned", schema))


def passed(conn: Conn, schema: str, subscription: str) -> bool:
    """Return True if each partition of the subscription has an owner and a saved cursor that has passed its records."""
    return bool(_number(conn, "bench_passed", schema, subscription=subscription))


def gathered(conn: Conn, schema: str, members: Sequence[str]) -> bool:
    """Return True if there is an instance for each member, each owns partitions, and none is unowned."""
    values = {"members": len(members), "subscriptions": [*set(members)]}
    return bool(_number(conn, "bench_gathered", schema, **values))


def free_connections(conn: Conn, schema: str) -> int:
    """Return the number of connections that the server still allows."""
    return int(_number(conn, "bench_free_connections", schema))


def ages(conn: Conn, schema: str) -> dict[UUID, float]:
    """Return the seconds since each instance registered."""
    return dict(conn.execute(query("bench_ages", schema), {}).fetchall())


def wal(conn: Conn, schema: str) -> float:
    """Return the bytes of WAL that the server has written so far, for all sessions."""
    return _number(conn, "bench_wal", schema)


def calm(conn: Conn, schema: str) -> None:
    """Remove dead rows of the cursors, and turn autovacuum off for them."""
    conn.execute(query("bench_calm", schema), {})
    _flush(conn, schema)
    conn.execute(query("bench_calmed", schema), {})


def dead(conn: Conn, schema: str) -> float:
    """Return the dead rows of the schema's tables that other sessions have flushed to the statistics."""
    _flush(conn, schema)
    return _number(conn, "bench_dead", schema)


def entries_read(conn: Conn, schema: str) -> int:
    """Return the number of rows and index entries of the log that ended sessions have read."""
    _flush(conn, schema)
    return int(_number(conn, "bench_entries_read", schema))


def transactions(conn: Conn, schema: str) -> float:
    """Return the number of transactions of this database that have ended."""
    return _number(conn, "bench_transactions", schema)


def backends(conn: Conn, schema: str, name: str) -> list[Backend]:
    """Return the server processes of the sessions with this application name."""
    return [Backend(*row) for row in conn.execute(query("bench_backends", schema), {"name": name})]


def backend(conn: Conn, schema: str) -> Backend:
    """Return the server process of this connection."""
    ((pid, began),) = conn.execute(query("bench_me", schema), {}).fetchall()
    return Backend(pid, began)


def begin_writing(conn: Conn, schema: str) -> None:
    """Assign an id to the open transaction, as a write does."""
    conn.execute(query("bench_xid", schema), {})


def settings(conn: Conn, schema: str) -> dict[str, str]:
    """Return the server settings that bear on the results."""
    return dict(conn.execute(query("bench_settings", schema), {}).fetchall())


def version(conn: Conn, schema: str) -> str:
    """Return the version of PostgreSQL."""
    ((said,),) = conn.execute(query("bench_version", schema), {}).fetchall()
    return str(said)


def iterate(conn: Conn, schema: str) -> int:
    """Read the whole log by a server-side cursor, in binary format, and return the number of rows."""
    with conn.transaction(), ServerCursor(conn, "partbox_bench") as cursor:
        cursor.itersize = ITERSIZE
        cursor.execute(query("bench_iterate", schema), {}, binary=True)
        return sum(1 for _ in cursor)


def copy(conn: Conn, schema: str, rows: Sequence[Row]) -> None:
    """Write rows by the COPY of publish_many."""
    with conn.transaction(), conn.cursor() as cursor, cursor.copy(statements.publish_copy(schema)) as into:
        for row in rows:
            into.write_row(row)


def insert(conn: Conn, schema: str, values: dict[str, Any]) -> None:
    """Insert one event in its own transaction."""
    with conn.transaction():
        conn.execute(query("bench_insert", schema), values)


async def insert_async(conn: AsyncConnection[Any], schema: str, values: dict[str, Any]) -> None:
    """Insert one event."""
    await conn.execute(query("bench_insert", schema), values)


def open_accounts(conn: Conn, schema: str, accounts: int) -> None:
    """Create an application's table with `accounts` rows, numbered from 0."""
    conn.execute(query("bench_accounts", schema), {})
    conn.execute(query("bench_accounts_fill", schema), {"accounts": accounts})


async def change_account(conn: AsyncConnection[Any], schema: str, account: int) -> None:
    """Update a row of that table."""
    await conn.execute(query("bench_account_change", schema), {"account": account})


def decode_little(conn: Conn) -> None:
    """Let the connection decode as little as a worker's does."""
    use_raw_loaders(conn)


def fill_textbook(conn: Conn, schema: str, events: int) -> None:
    """Fill the textbook outbox with exactly `events` unhandled events, the oldest of the log."""
    for name in ("bench_textbook", "bench_textbook_clear"):
        conn.execute(query(name, schema), {})
    conn.execute(query("bench_textbook_fill", schema), {"events": events})
    conn.execute(query("bench_textbook_vacuum", schema), {})


def textbook_page(conn: Conn, schema: str) -> int:
    """Take a page of the textbook outbox and delete it, in one transaction. Return its size."""
    with conn.transaction(), Cursor(conn) as cursor:
        rows = cursor.execute(query("bench_textbook_page", schema), {}, binary=True).fetchall()
        cursor.execute(query("bench_textbook_done", schema), {"ids": [id for id, *_ in rows]})
    return len(rows)


def _flush(conn: Conn, schema: str) -> None:
    """Make the server count everything that this session has done."""
    conn.execute(query("bench_flush", schema), {})


def _number(conn: Conn, name: str, schema: str, **values: Any) -> float:
    ((found,),) = conn.execute(query(name, schema), values).fetchall()
    return float(found or 0)
