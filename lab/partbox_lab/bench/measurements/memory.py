"""Memory of a process over a long backlog."""

from collections.abc import Set
from typing import Final

from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode

MEMORY: Final = Budget("memory", "memory (RSS) of a process over a backlog of 1 M", Direction.AT_MOST, 150, "MB")
FLAT: Final = Budget(
    "memory-flat", "its greatest in the second half of a backlog vs in the first", Direction.AT_MOST, 1.1
)
MEGABYTE: Final = 1_000_000


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    events = database.sizes.memory
    database.backlog(events)
    with BenchNode(database, database.outbox(ignore), 1, paused=True) as node:
        # A process grows for a while before its memory is steady, so the first drain does not count.
        node.drain()
        first, second = (each / MEGABYTE for each in node.drain().memory)
    note = f"over {events:,} events; {first:.0f} MB in the first half, {second:.0f} MB in the second"
    found = (Measured(MEMORY.name, max(first, second), note), Measured(FLAT.name, second / first, note))
    yield from (each for each in found if each.name in wanted)


GROUP = LineGroup((MEMORY, FLAT), _measure)
