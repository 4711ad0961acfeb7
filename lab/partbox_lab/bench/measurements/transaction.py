"""Delivery beside an unrelated transaction that has written and stays open."""

import os
import struct
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Final

import psycopg

from partbox.errors import PartboxError
from partbox.observe import Observer
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared
from partbox_lab.bench.sender import sending

DRAIN: Final = Budget(
    "open-transaction-drain", "drain beside an open write transaction vs without", Direction.AT_LEAST, 0.9
)
SAVING: Final = Budget("open-transaction-saving", "time spent saving after a minute of it", Direction.AT_MOST, 5, "%")
SAVE: Final = struct.Struct("<d")  # seconds of a save
RATE: Final = 500.0  # events per second
LAST: Final = 0.25  # the share of the time, at its end, that counts
TO_START: Final = 30.0  # seconds


class SaveTimes(Observer):
    """An observer, pickled for the worker processes, that notes the time of each save on the server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def saved(self, partitions: int, parked: Mapping[str, int], seconds: float) -> None:
        """Append the seconds of a save to the file."""
        os.write(self._file, SAVE.pack(seconds))

    @cached_property
    def _file(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@contextmanager
def _open(database: BenchDatabase) -> Iterator[None]:
    """Hold a transaction open that has written."""
    with psycopg.connect(database.dsn) as conn:
        statements.begin_writing(conn, database.schema)
        yield
        conn.rollback()


def _drain(database: BenchDatabase) -> Results:
    events = database.sizes.events
    database.backlog(events)
    beside, without = [], []
    with BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1) as node:
        for _ in range(database.sizes.rounds):
            without.append(node.drain().rate(events))
            with _open(database):
                beside.append(node.drain().rate(events))
    yield compared(DRAIN.name, ("beside", beside), ("without", without))


def _saving(database: BenchDatabase) -> Results:
    database.fresh()
    path = database.folder / "saves"
    path.touch(0o600)
    outbox = database.outbox(ignore)
    outbox.observe(SaveTimes(path))
    counted = LAST * database.sizes.open
    with (
        BenchNode(database, outbox, 1),
        _open(database),
        sending(database.dsn, database.schema, RATE, None, database.folder / "sent-beside") as sender,
    ):
        database.until(lambda: bool(sender.sent()), "the first event", TO_START)
        database.pause(database.sizes.open - counted)
        before, began = path.stat().st_size, time.monotonic()
        database.pause(counted)
        database.until(lambda: path.stat().st_size >= before + SAVE.size or sender.ended, "a save", TO_START)
        counted = time.monotonic() - began
        times = [seconds for (seconds,) in SAVE.iter_unpack(_whole(path.read_bytes()[before:]))]
        if sender.ended or not times:
            raise PartboxError("nothing was saved beside the open transaction, so nothing was measured")
    note = f"{len(times):,} saves in the last {counted:g} s of {database.sizes.open:g} s, at {RATE:g} events/s"
    yield Measured(SAVING.name, 100 * sum(times) / counted, note)


def _whole(data: bytes) -> bytes:
    return data[: len(data) - len(data) % SAVE.size]


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if DRAIN.name in wanted:
        yield from _drain(database)
    if SAVING.name in wanted:
        yield from _saving(database)


GROUP = LineGroup((DRAIN, SAVING), _measure)
