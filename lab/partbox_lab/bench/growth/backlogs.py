"""Backlogs that are unlike the plain one: skewed, committed at once, of large payloads."""

import time
from collections.abc import Callable, Set
from statistics import median
from typing import Final

from partbox_lab.bench import baselines, statements
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.family import Family, Results
from partbox_lab.bench.ground import Ground
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
RATE: Final = 100.0  # events a second of somebody else while the burst is made
MEGABYTE: Final = 1_000_000


def _filled(ground: Ground, fill: Callable[[], None]) -> None:
    ground.clear()
    ground.check()
    fill()
    statements.vacuum(ground.conn, ground.schema)


def _hot(ground: Ground) -> Results:
    sizes, schema = ground.sizes, ground.schema
    fills = {
        "plain": lambda: ground.load(sizes.events),
        "skewed": lambda: statements.load_skewed(ground.conn, schema, 1, sizes.events),
    }
    found: dict[str, list[float]] = {}
    ground.fresh()
    with BenchNode(ground, ground.outbox(ignore), 1, paused=True, concurrency=1) as node:
        for name, fill in fills.items():
            start = statements.position(ground.conn, schema)
            _filled(ground, fill)
            found[name] = [node.drain(start).rate(sizes.events) for _ in range(sizes.rounds)]
    yield compared(HOT.name, ("skewed", found["skewed"]), ("plain", found["plain"]))


def _burst(ground: Ground) -> Results:
    """The burst is published beside others, so all of it is late: lower ids than what they have committed since."""
    events, schema = ground.sizes.growth.burst, ground.schema
    ground.backlog(events)
    with BenchNode(ground, ground.outbox(ignore), 1, paused=True, concurrency=1) as node:
        plain = node.drain().rate(events)
    ground.fresh()
    with (
        BenchNode(ground, ground.outbox(ignore), 1, concurrency=1) as node,
        sending(ground.dsn, schema, RATE, None, ground.folder / "sent-burst") as sender,
    ):
        ground.until(lambda: bool(sender.sent()), "the first event")
        with ground.conn.transaction():
            statements.load(ground.conn, schema, 1, events)
            ground.pause(ground.sizes.calm)
        began = time.monotonic()
        sender.stop()
        ground.until(node.empty, "delivering the burst")
        seconds = time.monotonic() - began
    note = f"; {events:,} events, delivered {seconds:.1f} s after the commit, beside {RATE:g}/s of others"
    yield compared(BURST.name, ("burst", [events / seconds]), ("drain", [plain]), note)


def _large(ground: Ground) -> Results:
    sizes = ground.sizes.growth
    events, schema = sizes.large, ground.schema
    drained: list[float] = []
    read: list[float] = []
    memory = 0
    ground.fresh()
    with BenchNode(ground, ground.outbox(ignore), 1, paused=True, concurrency=1) as node:
        start = statements.position(ground.conn, schema)
        _filled(ground, lambda: statements.load_large(ground.conn, schema, events, sizes.payload))
        for _ in range(ground.sizes.rounds):
            read.append(baselines.iterating(ground))
            done = node.drain(start)
            drained.append(done.rate(events))
            memory = max(memory, *done.memory)
    each = sizes.payload / MEGABYTE
    note = f"; {events:,} of {each:.2f} MB, so {median(drained) * each:,.0f} MB/s"
    yield compared(LARGE.name, ("drain", drained), ("cursor", read), note)
    yield Measured(MEMORY.name, memory / MEGABYTE, f"{events:,} of {each:.2f} MB")


def _measure(ground: Ground, wanted: Set[str]) -> Results:
    if HOT.name in wanted:
        yield from _hot(ground)
    if BURST.name in wanted:
        yield from _burst(ground)
    if {LARGE.name, MEMORY.name} & wanted:
        yield from (each for each in _large(ground) if each.name in wanted)


FAMILY: Final = Family((HOT, BURST, LARGE, MEMORY), _measure)
