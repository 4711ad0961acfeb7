"""PgQ as a yardstick: batches of 10,000 events, and one consumer process per queue, which parses every payload."""

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import psycopg

from partbox.errors import PartboxError
from partbox_lab.bench import pgq_statements, statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.child_process import ChildProcess, StopPipe

QUEUES: Final = ("partbox_bench_1", "partbox_bench_2")
BATCH: Final = 10_000  # events
LOOK: Final = 0.001  # seconds
TO_START: Final = 60.0  # seconds
TO_DRAIN: Final = 600.0  # seconds
RESULT: Final = struct.Struct("<qqq")  # the fields of ConsumerTime
ABSENT: Final = "PgQ is not installed on this server"
NOT_MADE: Final = (
    "PgQ is not installed in this database: `create extension pgq` leaves roles behind, so do that yourself"
)
FORBIDDEN: Final = "this role may not create queues of PgQ: grant it pgq_admin"


class ConsumerTime(NamedTuple):
    """The work of a consumer, with monotonic times in nanoseconds."""

    began: int
    ended: int
    events: int


def lacking(database: BenchDatabase) -> str | None:
    """Return the reason why PgQ cannot be used in this database, or None."""
    found = pgq_statements.found(database.conn, database.schema)
    if not found.installed:
        return NOT_MADE if found.available else ABSENT
    return None if found.usable else FORBIDDEN


@contextmanager
def queues(database: BenchDatabase) -> Iterator[None]:
    """Hold the bench's two queues: create them, and drop them at the end."""
    try:
        for queue in QUEUES:
            pgq_statements.create(database.conn, database.schema, queue)
        yield
    finally:
        with psycopg.connect(database.dsn, autocommit=True) as conn:
            for queue in QUEUES:
                pgq_statements.drop(conn, database.schema, queue)


def draining(database: BenchDatabase, events: int, names: Sequence[str]) -> float:
    """Fill each queue with `events`, drain the queues at the same time, and return the events per second together."""
    for queue in names:
        for first in range(1, events + 1, BATCH):
            database.check()
            pgq_statements.fill(database.conn, database.schema, queue, first, min(first + BATCH - 1, events))
    go = database.folder / "pgq-go"
    results = [database.folder / queue for queue in names]
    with ExitStack() as stack:
        tasks = [(database.dsn, database.schema, queue, path, go) for queue, path in zip(names, results, strict=True)]
        started = [stack.enter_context(ChildProcess("partbox-bench-pgq", _consume, *task)) for task in tasks]
        database.until(lambda: all(path.exists() for path in results), "starting PgQ's consumers", TO_START)
        go.touch()
        database.until(lambda: all(each.ended for each in started), "draining PgQ", TO_DRAIN)
    found = [ConsumerTime(*RESULT.unpack(path.read_bytes())) for path in results if path.stat().st_size]
    for path in (*results, go):
        path.unlink()
    if sum(each.events for each in found) != events * len(names):
        raise PartboxError(f"PgQ did not give the events that it had: {database.failure() or 'nobody said why'}")
    passed = max(each.ended for each in found) - min(each.began for each in found)
    return events * len(names) / passed * 1e9


def _consume(dsn: str, schema: str, queue: str, path: Path, go: Path, stop: StopPipe) -> None:
    """Report that the consumer is ready, wait for the others, and take every batch."""
    with psycopg.connect(dsn) as conn:
        statements.decode_little(conn)
        path.touch()
        while not go.exists():
            if stop.poll(LOOK):
                return
        count, began = 0, time.monotonic_ns()
        while (taken := pgq_statements.batch(conn, schema, queue, orjson.loads)) is not None and not stop.poll(0):
            count += taken
        path.write_bytes(RESULT.pack(*ConsumerTime(began, time.monotonic_ns(), count)))
