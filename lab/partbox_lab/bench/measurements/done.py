"""Drains of new events above millions of done records."""

from collections.abc import Set
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared

DONE: Final = Budget("done-records", "drain with 10 M done records in the log vs an empty one", Direction.AT_LEAST, 0.9)


def _drains(database: BenchDatabase, node: BenchNode) -> list[float]:
    """Append new events to the log, and drain them repeatedly."""
    events, end = database.sizes.events, statements.position(database.conn, database.schema)
    database.load(events)
    return [node.drain(end).rate(events) for _ in range(database.sizes.rounds)]


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    """Measure the empty log before and after the full one, so that a machine that slows down favours neither."""
    database.fresh()
    with BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1) as node:
        empty = _drains(database, node)
        database.load(database.sizes.done)
        full = _drains(database, node)
        database.clear()
        empty += _drains(database, node)
    note = f"; {database.sizes.done + database.sizes.events:,} records done"
    yield compared(DONE.name, ("above them", [*full, *full]), ("empty", empty), note)


GROUP = LineGroup((DONE,), _measure)
