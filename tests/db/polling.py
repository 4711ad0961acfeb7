"""Records to be polled, and polls of single partitions."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from ownership import SCHEMA, Conn

from partbox.db.delivery import records
from partbox.protocol.cursor import ReadRequest
from partbox.protocol.horizon import Page
from partbox.protocol.sweep import Sweep

TOP = 2**62
START = "1:1:"
MILLION = 1_000_000


def write(conn: Conn, count: int = 1, partition: int = 5) -> None:
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, aggregate_id, payload, headers, available_at)"
        " select %s, gen_random_uuid(), 'E', 'a', '{\"n\": 1}', null, null from generate_series(1, %s)",
        [partition, count],
    )


def write_at(conn: Conn, id: int, partition: int = 5) -> None:
    """A record with the id given, as if so many had been drawn before."""
    conn.execute("select setval('partbox.record_id_seq', %s)", [id - 1])
    write(conn, 1, partition)


def ask(
    last_id: int = 0,
    room: int = 100,
    snapshot: str = START,
    floor: int = 0,
    *,
    partition: int = 5,
    base: Page | None = None,
    until: str | None = None,
    after: int | None = None,
) -> ReadRequest:
    return ReadRequest(partition, last_id, room, base or Page(snapshot, floor), until, after)


def poll(
    conn: Conn, *asks: ReadRequest, shared: Page | None = None, lo: int = 0, hi: int = TOP, swept: Sweep | None = None
) -> tuple[str, list[int]]:
    """The snapshot of the page, and its ids in order."""
    snapshot, _, rows, *_ = records.poll_page(conn, SCHEMA, asks, shared, lo=lo, hi=hi, sweep=swept)
    return snapshot, sorted(row[1] for row in rows)


@contextmanager
def writing(dsn: str, count: int = 1, partition: int = 5) -> Iterator[Conn]:
    """A transaction that has written and stays open until the end of the block, or its own commit."""
    with psycopg.connect(dsn) as conn:
        write(conn, count, partition)
        yield conn
