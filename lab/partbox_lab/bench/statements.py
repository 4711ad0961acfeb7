"""Statements of `partbox bench`: its backlog, what is compared with it, and the counters of the server."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection, Connection, Cursor, ServerCursor

from partbox.db import statements
from partbox.db.blocking import use_raw_loaders
from partbox_lab.sql import query

Conn = Connection[Any]
Row = tuple[Any, ...]

FLUSHES = 150_000  # the first version where a session can be told to show its statistics at once
ITERSIZE = 10_000


class ReadPosition(NamedTuple):
    """A place in the log: what is visible in the snapshot, up to the id, is consumed."""

    snapshot: str
    last_id: int


class BenchPartition(NamedTuple):
    """A partition that is owned."""

    partition: int
    owner: UUID
    epoch: int


class Backend(NamedTuple):
    """A server process; `began` in Unix seconds, by the server's clock."""

    pid: int
    began: float


def load(conn: Conn, schema: str, first: int, last: int) -> None:
    """Append records of these numbers."""
    conn.execute(query("bench_load", schema), {"first": first, "last": last})


def load_skewed(conn: Conn, schema: str, first: int, last: int) -> None:
    """Append records of these numbers: one aggregate has half of them, a few of the others most of the rest."""
    conn.execute(query("bench_load_skewed", schema), {"first": first, "last": last})


def load_large(conn: Conn, schema: str, events: int, payload: int) -> None:
    """Append so many records, with payloads of so many bytes that do not compress."""
    conn.execute(query("bench_load_large", schema), {"events": events, "payload": payload})


def vacuum(conn: Conn, schema: str) -> None:
    """Vacuum and analyze the log."""
    conn.execute(query("bench_vacuum", schema), {})


def clear(conn: Conn, schema: str) -> None:
    """Remove every record."""
    conn.execute(query("bench_clear", schema), {})


def rewind(conn: Conn, schema: str, position: ReadPosition) -> None:
    """Set every cursor to a position, without an owner and with nothing parked."""
    with conn.transaction():
        conn.execute(query("bench_rewind", schema), position._asdict())
        conn.execute(query("bench_unpark", schema), {})


def position(conn: Conn, schema: str) -> ReadPosition:
    """The end of the log."""
    ((snapshot, last_id),) = conn.execute(query("bench_position", schema), {}).fetchall()
    return ReadPosition(snapshot, last_id)


def drained(conn: Conn, schema: str) -> float:
    """Seconds from the first claim of a partition to the last save."""
    return _number(conn, "bench_drained", schema)


def owners(conn: Conn, schema: str) -> list[BenchPartition]:
    """The partitions that are owned."""
    return [BenchPartition(*row) for row in conn.execute(query("bench_owners", schema), {})]


def owned(conn: Conn, schema: str) -> int:
    """The number of partitions that are owned."""
    return int(_number(conn, "bench_owned", schema))


def gathered(conn: Conn, schema: str, members: Sequence[str]) -> bool:
    """True if there is an instance for each of these subscriptions, each owns something, and all of them is owned."""
    values = {"members": len(members), "subscriptions": [*set(members)]}
    return bool(_number(conn, "bench_gathered", schema, **values))


def free_connections(conn: Conn, schema: str) -> int:
    """The number of connections that the server still allows."""
    return int(_number(conn, "bench_free_connections", schema))


def ages(conn: Conn, schema: str) -> dict[UUID, float]:
    """The instances, each with the seconds since it joined."""
    return dict(conn.execute(query("bench_ages", schema), {}).fetchall())


def wal(conn: Conn, schema: str) -> float:
    """Bytes of WAL that the server has written so far, whoever caused them."""
    return _number(conn, "bench_wal", schema)


def calm(conn: Conn, schema: str) -> None:
    """Remove dead rows of the cursors, and keep autovacuum off those to come."""
    conn.execute(query("bench_calm", schema), {})
    _flush(conn, schema)
    conn.execute(query("bench_calmed", schema), {})


def dead(conn: Conn, schema: str) -> float:
    """Dead rows of the schema's tables, as far as other sessions have told."""
    _flush(conn, schema)
    return _number(conn, "bench_dead", schema)


def transactions(conn: Conn, schema: str) -> float:
    """Transactions of this database that have ended."""
    return _number(conn, "bench_transactions", schema)


def backends(conn: Conn, schema: str, name: str) -> list[Backend]:
    """The server processes of the sessions with this application name."""
    return [Backend(*row) for row in conn.execute(query("bench_backends", schema), {"name": name})]


def backend(conn: Conn, schema: str) -> Backend:
    """The server process of this session."""
    ((pid, began),) = conn.execute(query("bench_me", schema), {}).fetchall()
    return Backend(pid, began)


def begin_writing(conn: Conn, schema: str) -> None:
    """Give the open transaction an id, as one has that writes."""
    conn.execute(query("bench_xid", schema), {})


def settings(conn: Conn, schema: str) -> dict[str, str]:
    """The settings of the server that matter for what is measured."""
    return dict(conn.execute(query("bench_settings", schema), {}).fetchall())


def version(conn: Conn, schema: str) -> str:
    """The version of the server."""
    ((said,),) = conn.execute(query("bench_version", schema), {}).fetchall()
    return str(said)


def iterate(conn: Conn, schema: str) -> int:
    """Read every record through a server-side cursor; returns their number."""
    with conn.transaction(), ServerCursor(conn, "partbox_bench") as cursor:
        cursor.itersize = ITERSIZE
        cursor.execute(query("bench_iterate", schema), {}, binary=True)
        return sum(1 for _ in cursor)


def copy(conn: Conn, schema: str, rows: Sequence[Row]) -> None:
    """Write rows by the COPY that publish_many sends."""
    with conn.transaction(), conn.cursor() as cursor, cursor.copy(statements.publish_copy(schema)) as into:
        for row in rows:
            into.write_row(row)


def insert(conn: Conn, schema: str, values: dict[str, Any]) -> None:
    """Insert one event in a transaction of its own."""
    with conn.transaction():
        conn.execute(query("bench_insert", schema), values)


async def insert_async(conn: AsyncConnection[Any], schema: str, values: dict[str, Any]) -> None:
    """Insert one event."""
    await conn.execute(query("bench_insert", schema), values)


def open_accounts(conn: Conn, schema: str, accounts: int) -> None:
    """Have a table of an application, with so many rows, numbered from 0."""
    conn.execute(query("bench_accounts", schema), {})
    conn.execute(query("bench_accounts_fill", schema), {"accounts": accounts})


async def change_account(conn: AsyncConnection[Any], schema: str, account: int) -> None:
    """Change a row of that table."""
    await conn.execute(query("bench_account_change", schema), {"account": account})


def decode_little(conn: Conn) -> None:
    """Have the connection decode what it reads as little as a worker's does."""
    use_raw_loaders(conn)


def fill_textbook(conn: Conn, schema: str, events: int) -> None:
    """Have a textbook outbox of exactly so many unhandled events: the oldest of the log."""
    for name in ("bench_textbook", "bench_textbook_clear"):
        conn.execute(query(name, schema), {})
    conn.execute(query("bench_textbook_fill", schema), {"events": events})
    conn.execute(query("bench_textbook_vacuum", schema), {})


def textbook_page(conn: Conn, schema: str) -> int:
    """Take a page of the textbook outbox and mark it handled, in one transaction; returns its size."""
    with conn.transaction(), Cursor(conn) as cursor:
        rows = cursor.execute(query("bench_textbook_page", schema), {}, binary=True).fetchall()
        cursor.execute(query("bench_textbook_done", schema), {"ids": [id for id, *_ in rows]})
    return len(rows)


def _flush(conn: Conn, schema: str) -> None:
    """Have the server count what this session has done."""
    if conn.info.server_version >= FLUSHES:
        conn.execute(query("bench_flush", schema), {})


def _number(conn: Conn, name: str, schema: str, **values: Any) -> float:
    ((found,),) = conn.execute(query(name, schema), values).fetchall()
    return float(found or 0)
