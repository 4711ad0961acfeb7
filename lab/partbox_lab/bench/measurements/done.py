"""Draining new events above millions that are done."""

from collections.abc import Set
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.budget import Budget, Direction
from partbox_lab.bench.family import Family, Results
from partbox_lab.bench.ground import Ground
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared

DONE: Final = Budget("done-records", "drain with 10 M done records in the log vs an empty one", Direction.AT_LEAST, 0.9)


def _drains(ground: Ground, node: BenchNode) -> list[float]:
    """Append new events to what is done, and drain them again and again."""
    events, end = ground.sizes.events, statements.position(ground.conn, ground.schema)
    ground.load(events)
    return [node.drain(end).rate(events) for _ in range(ground.sizes.rounds)]


def _measure(ground: Ground, wanted: Set[str]) -> Results:
    """The empty log comes before and after the full one, so that a machine that slows down favours neither."""
    ground.fresh()
    with BenchNode(ground, ground.outbox(ignore), 1, paused=True, concurrency=1) as node:
        empty = _drains(ground, node)
        ground.load(ground.sizes.done)
        full = _drains(ground, node)
        ground.clear()
        empty += _drains(ground, node)
    note = f"; {ground.sizes.done + ground.sizes.events:,} records done"
    yield compared(DONE.name, ("above them", [*full, *full]), ("empty", empty), note)


FAMILY = Family((DONE,), _measure)
