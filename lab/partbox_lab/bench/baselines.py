"""Yardsticks without partbox: raw PostgreSQL through psycopg, and waits without a database. Each returns a rate per
second."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg

from partbox.errors import PartboxError
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.handlers import WAIT

Row = tuple[Any, ...]


def iterating(database: BenchDatabase) -> float:
    """Return how many records a second a server-side cursor reads, with the columns that a worker reads."""
    with psycopg.connect(database.dsn) as conn:
        statements.decode_little(conn)
        began = time.perf_counter()
        read = statements.iterate(conn, database.schema)
        return read / (time.perf_counter() - began)


def textbook(database: BenchDatabase, events: int) -> float:
    """Drain a textbook `SKIP LOCKED` outbox: lock, handle, delete and commit pages of 100. Return the events per
    second. Raise PartboxError if events are missing."""
    statements.fill_textbook(database.conn, database.schema, events)
    with psycopg.connect(database.dsn) as conn:
        statements.decode_little(conn)
        handled, began = 0, time.perf_counter()
        while page := statements.textbook_page(conn, database.schema):
            database.check()
            handled += page
        taken = time.perf_counter() - began
    if handled != events:
        raise PartboxError(f"the textbook outbox gave {handled:,} of {events:,} events")
    return events / taken


def copying(database: BenchDatabase, conn: psycopg.Connection[Any], rows: Sequence[Row]) -> float:
    """Write rows into the log by one COPY in one transaction, and return the rows per second."""
    began = time.perf_counter()
    statements.copy(conn, database.schema, rows)
    return len(rows) / (time.perf_counter() - began)


def inserting(
    database: BenchDatabase, conn: psycopg.Connection[Any], rows: Sequence[tuple[int, UUID, str, str]]
) -> float:
    """Insert events one by one, each in its own transaction, and return the rows per second. `rows` hold partition,
    event id, aggregate id and payload."""
    began = time.perf_counter()
    for partition, event_id, aggregate_id, payload in rows:
        values = {
            "partition": partition,
            "event_id": event_id,
            "event_type": "OrderPlaced",
            "aggregate_type": "Order",
            "aggregate_id": aggregate_id,
            "payload": payload,
        }
        statements.insert(conn, database.schema, values)
    return len(rows) / (time.perf_counter() - began)


def waiting_threads(at_once: int, waits: int) -> float:
    """Wait 1 ms about `waits` times in `at_once` threads, as the handler `wait` does, and return the waits per
    second."""

    def wait(times: int) -> None:
        for _ in range(times):
            time.sleep(WAIT)

    each = max(1, waits // at_once)
    with ThreadPoolExecutor(at_once) as threads:
        began = time.perf_counter()
        list(threads.map(wait, [each] * at_once))
        return at_once * each / (time.perf_counter() - began)


def waiting_tasks(at_once: int, waits: int) -> float:
    """Wait 1 ms about `waits` times in `at_once` tasks of one event loop, as `wait_async` does, and return the waits
    per second."""

    async def wait(times: int) -> None:
        for _ in range(times):
            await asyncio.sleep(WAIT)

    async def all_at_once() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(wait(each) for _ in range(at_once)))
        return at_once * each / (time.perf_counter() - began)

    each = max(1, waits // at_once)
    return asyncio.run(all_at_once())
