"""CPU of the worker per event for each shape of handler that does nothing, compared with sync one by one.

A bare cursor that reads the same columns runs beside all shapes."""

from collections.abc import Sequence, Set
from contextlib import ExitStack
from statistics import median
from typing import Final

from partbox_lab.bench import baselines
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ListHandler, ignore, ignore_async, ignore_list
from partbox_lab.bench.rounds import compared, in_rounds, ratio
from partbox_lab.bench.shape_nodes import HandlerShape, ShapeDrain, ShapeNodes, costs, drains_in_turn, rates


def _cheap(name: str, what: str, bound: float) -> Budget:
    return Budget(f"drain-{name}", f"CPU of the worker per event, {what}, vs sync one by one", Direction.AT_MOST, bound)


CURSOR: Final = Budget(
    "drain-cursor",
    "drain, 1 process, sync one by one, vs iterating the same columns by a server-side cursor",
    Direction.AT_LEAST,
    0.5,
)
SYNC: Final = HandlerShape(CURSOR, ignore, 1)
THREADS: Final = HandlerShape(_cheap("threads", "sync in 4 threads (the default)", 1.15), ignore, 4)
LISTS: Final = HandlerShape(_cheap("lists", "lists of up to 1,000", 0.8), ListHandler(ignore_list), 4)
ASYNC: Final = HandlerShape(_cheap("async", "async, 100 at once", 1.6), ignore_async, 100)


def _beside(
    name: str, ours: Sequence[ShapeDrain], sync: Sequence[ShapeDrain], cursor: Sequence[ShapeDrain]
) -> Measured:
    """Return the line of a shape, compared with sync one by one."""
    rate, cost = rates(ours), costs(ours)
    of_cursor, of_sync = ratio(rate, rates(cursor)), ratio(rate, rates(sync))
    said = f"{median(rate):,.0f}/s, {of_cursor:.2f} of the cursor, {of_sync:.2f} of one by one{in_rounds(len(rate))}"
    details: dict[str, float | list[float]] = {
        "of_cursor": of_cursor,
        "of_sync": of_sync,
        "rates": rate,
        "cpu_us": cost,
        "cpu_us_sync": costs(sync),
    }
    return Measured(name, ratio(cost, costs(sync)), said, details, median(cost))


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    others = [each for each in (THREADS, LISTS, ASYNC) if each.budget.name in wanted]
    database.backlog(database.sizes.events)
    with ExitStack() as stack:
        nodes = ShapeNodes(database, stack)
        drains = [nodes.drain(each) for each in (SYNC, *others)]
        cursor, sync, *found = drains_in_turn(database, lambda: ShapeDrain(baselines.iterating(database), 0.0), *drains)
    if CURSOR.name in wanted:
        yield compared(CURSOR.name, ("drain", rates(sync)), ("cursor", rates(cursor)), cpu=median(costs(sync)))
    for shape, drained in zip(others, found, strict=True):
        yield _beside(shape.budget.name, drained, sync, cursor)


GROUP = LineGroup(tuple(each.budget for each in (SYNC, THREADS, LISTS, ASYNC)), _measure)
