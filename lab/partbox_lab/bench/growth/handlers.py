"""CPU time to make a supervisor that has thousands of handlers."""

import time
from collections.abc import Set
from statistics import median
from typing import Final

from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore

HANDLERS: Final = Budget("handlers", "CPU time to make a supervisor with 10,000 handlers", Direction.AT_MOST, 0.5, "s")


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    handlers, costs = database.sizes.growth.handlers, list[float]()
    for _ in range(database.sizes.rounds):
        database.check()
        outbox = database.outbox()
        for number in range(handlers):
            outbox.register(ignore, f"Type{number}", name=f"handler-{number}")
        began = time.thread_time()
        outbox.supervisor(processes=1)
        costs.append(time.thread_time() - began)
    yield Measured(HANDLERS.name, median(costs), f"{handlers:,} handlers, each of a type of its own", {"costs": costs})


GROUP: Final = LineGroup((HANDLERS,), _measure)
