"""Rates of each shape of handler that waits, compared with threads or asyncio tasks that wait as often without partbox.

Bare waits are the upper limit. A list waits once, so it is compared with lists that do not wait."""

from collections.abc import Callable, Set
from contextlib import ExitStack
from importlib.util import find_spec
from statistics import median
from typing import Final

from partbox_lab.bench.baselines import waiting_tasks, waiting_threads
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import WAIT, ListHandler, wait, wait_async, wait_list
from partbox_lab.bench.measurements.shapes import LISTS
from partbox_lab.bench.rounds import compared
from partbox_lab.bench.shape_nodes import HandlerShape, ShapeDrain, ShapeNodes, costs, drains_in_turn, rates

# The waits per second without partbox, given the concurrency and the number of waits.
Bare = Callable[[int, int], float]


def _waits(name: str, what: str, bound: float) -> Budget:
    return Budget(f"wait-{name}", f"handlers that wait 1 ms, {what}", Direction.AT_LEAST, bound)


BARE: tuple[tuple[HandlerShape, Bare], ...] = (
    (HandlerShape(_waits("sync", "sync one by one, vs a bare thread", 0.9), wait, 1), waiting_threads),
    (HandlerShape(_waits("threads", "sync in 4 threads, vs bare threads", 0.9), wait, 4), waiting_threads),
    (HandlerShape(_waits("threads-16", "sync in 16 threads, vs bare threads", 0.9), wait, 16), waiting_threads),
    (HandlerShape(_waits("async", "async, 100 at once, vs bare asyncio", 0.8), wait_async, 100), waiting_tasks),
)
# The extra `uvloop` installs the package, which does not exist for Windows.
if find_spec("uvloop"):
    BARE += (
        (
            HandlerShape(_waits("uvloop", "the same by uvloop, vs asyncio", 0.8), wait_async, 100, "uvloop"),
            waiting_tasks,
        ),
    )
WAITING_LISTS: Final = HandlerShape(
    Budget("wait-lists", "lists of up to 1,000 that wait 1 ms, vs lists that do nothing", Direction.AT_LEAST, 0.9),
    ListHandler(wait_list),
    LISTS.concurrency,
)


def _beside_bare(database: BenchDatabase, shape: HandlerShape, bare: Bare) -> Measured:
    waits = round(shape.concurrency * database.sizes.waits / WAIT)
    with ExitStack() as stack:
        drain = ShapeNodes(database, stack).drain(shape, waits)
        limit, found = drains_in_turn(database, lambda: ShapeDrain(bare(shape.concurrency, waits), 0.0), drain)
    ours, theirs = ("drain", rates(found)), ("without partbox", rates(limit))
    return compared(shape.budget.name, ours, theirs, cpu=median(costs(found)))


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    database.backlog(database.sizes.events)
    yield from (_beside_bare(database, *each) for each in BARE if each[0].budget.name in wanted)


def _measure_lists(database: BenchDatabase, _: Set[str]) -> Results:
    database.backlog(database.sizes.events)
    with ExitStack() as stack:
        nodes = ShapeNodes(database, stack)
        without, found = drains_in_turn(database, nodes.drain(LISTS), nodes.drain(WAITING_LISTS))
    ours, theirs = ("waiting", rates(found)), ("not waiting", rates(without))
    yield compared(WAITING_LISTS.budget.name, ours, theirs, cpu=median(costs(found)))


GROUP = LineGroup(tuple(shape.budget for shape, _ in BARE), _measure)
OF_LISTS = LineGroup((WAITING_LISTS.budget,), _measure_lists)
