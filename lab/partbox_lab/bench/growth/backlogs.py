"""Drains of unusual backlogs: skewed over aggregates, committed at once, or with large payloads."""

import time
from collections.abc import Callable, Set
from statistics import median
from typing import Final

from partbox_lab.bench import baselines, statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared
from partbox_lab.bench.sender import sending

HOT: Final = Budget(
    "aggregate-hot",
    "drain where one aggregate has half of all events, and the rest is spread by Zipf, vs a plain one",
    Direction.AT_LEAST,
    0.1,
)
BURST: Final = Budget(
    "burst",
    "delivery of a burst in one transaction, from its commit on, vs a drain of as many",
    Direction.AT_LEAST,
    0.5,
)
LARGE: Final = Budget(
    "payload-large", "drain of payloads of 1 MB vs iterating them by a server-side cursor", Direction.AT_LEAST, 0.5
)
MEMORY: Final = Budget("payload-memory", "memory of a process that drains them", Direction.AT_MOST, 400, "MB")
RATE: Final = 100.0  # events per second of others while the burst is written
MEGABYTE: Final = 1_000_000


def _filled(database: BenchDatabase, fill: Callable[[], None]) -> None:
    database.clear()
    database.check()
    fill()
    statements.vacuum(database.conn, database.schema)


def _hot(database: BenchDatabase) -> Results:
    sizes, schema = database.sizes, database.schema
    fills = {
        "plain": lambda: database.load(sizes.events),
        "skewed": lambda: statements.load_skewed(database.conn, schema, 1, sizes.events),
    }
    found: dict[str, list[float]] = {}
    database.fresh()
    with BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1) as node:
        for name, fill in fills.items():
            start = statements.position(database.conn, schema)
            _filled(database, fill)
            found[name] = [node.drain(start).rate(sizes.events) for _ in range(sizes.rounds)]
    yield compared(HOT.name, ("skewed", found["skewed"]), ("plain", found["plain"]))


def _burst(database: BenchDatabase) -> Results:
    """Measure the delivery of a burst beside other publishers. All of the burst is late: its ids are lower than ids
    that others committed in the meantime."""
    events, schema = database.sizes.growth.burst, database.schema
    database.backlog(events)
    with BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1) as node:
        plain = node.drain().rate(events)
    database.fresh()
    with (
        BenchNode(database, database.outbox(ignore), 1, concurrency=1) as node,
        sending(database.dsn, schema, RATE, None, database.folder / "sent-burst") as sender,
    ):
        database.until(lambda: bool(sender.sent()), "the first event")
        with database.conn.transaction():
            statements.load(database.conn, schema, 1, events)
            database.pause(database.sizes.calm)
        began = time.monotonic()
        sender.stop()
        database.until(node.empty, "delivering the burst")
        seconds = time.monotonic() - began
    note = f"; {events:,} events, delivered {seconds:.1f} s after the commit, beside {RATE:g}/s of others"
    yield compared(BURST.name, ("burst", [events / seconds]), ("drain", [plain]), note)


def _large(database: BenchDatabase) -> Results:
    sizes = database.sizes.growth
    events, schema = sizes.large, database.schema
    drained: list[float] = []
    read: list[float] = []
    memory = 0
    database.fresh()
    with BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1) as node:
        start = statements.position(database.conn, schema)
        _filled(database, lambda: statements.load_large(database.conn, schema, events, sizes.payload))
        for _ in range(database.sizes.rounds):
            read.append(baselines.iterating(database))
            done = node.drain(start)
            drained.append(done.rate(events))
            memory = max(memory, *done.memory)
    each = sizes.payload / MEGABYTE
    note = f"; {events:,} of {each:.2f} MB, so {median(drained) * each:,.0f} MB/s"
    yield compared(LARGE.name, ("drain", drained), ("cursor", read), note)
    yield Measured(MEMORY.name, memory / MEGABYTE, f"{events:,} of {each:.2f} MB")


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if HOT.name in wanted:
        yield from _hot(database)
    if BURST.name in wanted:
        yield from _burst(database)
    if {LARGE.name, MEMORY.name} & wanted:
        yield from (each for each in _large(database) if each.name in wanted)


GROUP: Final = LineGroup((HOT, BURST, LARGE, MEMORY), _measure)
