"""Statements of `partbox bench` that compare with PgQ, where it is installed."""

from collections.abc import Callable
from typing import Any, NamedTuple

from psycopg import Connection, Cursor

from partbox_lab.sql import query

Conn = Connection[Any]

PAYLOAD = 3  # its place in an event


class PgqFound(NamedTuple):
    """`usable`: this role may create queues; `installed` in this database; `available` on this server."""

    usable: bool
    installed: bool
    available: bool


def found(conn: Conn, schema: str) -> PgqFound:
    """PgQ in this database."""
    (row,) = conn.execute(query("bench_pgq_found", schema), {}).fetchall()
    return PgqFound(*row)


def create(conn: Conn, schema: str, queue: str) -> None:
    """Have an empty queue of this name, with a consumer."""
    drop(conn, schema, queue)
    conn.execute(query("bench_pgq_create", schema), {"queue": queue})


def drop(conn: Conn, schema: str, queue: str) -> None:
    """Drop the queue, if it is there."""
    conn.execute(query("bench_pgq_drop", schema), {"queue": queue})


def fill(conn: Conn, schema: str, queue: str, first: int, last: int) -> None:
    """Append the records of these ids as one batch."""
    for name in ("bench_pgq_fill", "bench_pgq_force", "bench_pgq_tick"):  # each in a transaction of its own
        values = {"queue": queue} | ({"first": first, "last": last} if name == "bench_pgq_fill" else {})
        conn.execute(query(name, schema), values)


def batch(conn: Conn, schema: str, queue: str, handle: Callable[[str], object]) -> int | None:
    """Take the next batch, handle each payload, and finish it, in one transaction; the number of its events, None if
    there is none."""
    with conn.transaction(), Cursor(conn) as cursor:
        ((taken,),) = cursor.execute(query("bench_pgq_next", schema), {"queue": queue}).fetchall()
        if taken is None:
            return None
        values = {"batch": taken}
        events = cursor.execute(query("bench_pgq_events", schema), values, binary=True).fetchall()
        for event in events:
            handle(event[PAYLOAD])
        cursor.execute(query("bench_pgq_finish", schema), values)
    return len(events)
