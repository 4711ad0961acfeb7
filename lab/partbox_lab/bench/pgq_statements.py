"""Statements of the bench to PgQ, where it is installed."""

from collections.abc import Callable
from typing import Any, NamedTuple

from psycopg import Connection, Cursor

from partbox_lab.sql import query

Conn = Connection[Any]

PAYLOAD = 3  # index in the row of an event


class PgqFound(NamedTuple):
    """The state of PgQ in a database."""

    usable: bool  # this role may create queues
    installed: bool  # in this database
    available: bool  # on the server


def found(conn: Conn, schema: str) -> PgqFound:
    """Return whether PgQ is usable, installed and available."""
    (row,) = conn.execute(query("bench_pgq_found", schema), {}).fetchall()
    return PgqFound(*row)


def create(conn: Conn, schema: str, queue: str) -> None:
    """Create an empty queue with a consumer."""
    drop(conn, schema, queue)
    conn.execute(query("bench_pgq_create", schema), {"queue": queue})


def drop(conn: Conn, schema: str, queue: str) -> None:
    """Drop the queue, if it exists."""
    conn.execute(query("bench_pgq_drop", schema), {"queue": queue})


def fill(conn: Conn, schema: str, queue: str, first: int, last: int) -> None:
    """Append the records of these ids as one batch."""
    for name in ("bench_pgq_fill", "bench_pgq_force", "bench_pgq_tick"):
        # Each statement runs in its own transaction.
        values = {"queue": queue} | ({"first": first, "last": last} if name == "bench_pgq_fill" else {})
        conn.execute(query(name, schema), values)


def batch(conn: Conn, schema: str, queue: str, handle: Callable[[str], object]) -> int | None:
    """Take the next batch, handle each payload and finish the batch, in one transaction. Return the number of events,
    or None if there is no batch."""
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
