"""Drains by lists, compared with PgQ, which also delivers lists. Both parse every payload."""

from collections.abc import Set
from contextlib import ExitStack
from statistics import median
from typing import Final

from partbox.cgroup import usable_processors
from partbox_lab.bench import pgq
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ListHandler, parse_list
from partbox_lab.bench.node import ONE_PROCESSOR, BenchNode
from partbox_lab.bench.rounds import compared, in_turn

PGQ: Final = Budget("drain-pgq", "drain by lists, 1 process, vs PgQ by batches", Direction.AT_LEAST, 1.2)
PGQ_TWO: Final = Budget("drain-pgq-two", "drain by lists, 2 processes, vs PgQ in two queues", Direction.AT_LEAST, 1)
PROCESSES: Final = {PGQ.name: 1, PGQ_TWO.name: 2}


def _why_not(database: BenchDatabase, name: str) -> str | None:
    """Return why the line cannot be measured here, or None."""
    return ONE_PROCESSOR if PROCESSES[name] > usable_processors() else pgq.lacking(database)


def _compared(database: BenchDatabase, node: BenchNode, name: str) -> Measured:
    sizes, processes = database.sizes, PROCESSES[name]
    costs: list[float] = []

    def drain() -> float:
        found = node.drain(processes=processes)
        costs.append(found.cost(sizes.events))
        return found.rate(sizes.events)

    ours, theirs = in_turn(sizes.rounds, drain, lambda: pgq.draining(database, sizes.textbook, pgq.QUEUES[:processes]))
    return compared(name, ("lists", ours), ("PgQ", theirs), cpu=median(costs[1:]))


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    asked = []
    for name in (each for each in PROCESSES if each in wanted):
        if (reason := _why_not(database, name)) is None:
            asked.append(name)
        else:
            yield Unmeasured(name, reason)
    if not asked:
        return
    database.backlog(database.sizes.events)
    with ExitStack() as stack:
        stack.enter_context(pgq.queues(database))
        node = stack.enter_context(BenchNode(database, database.outbox(ListHandler(parse_list)), 1, paused=True))
        for name in asked:
            yield _compared(database, node, name)


GROUP = LineGroup((PGQ, PGQ_TWO), _measure)
