"""Cost of the bell for many clients that publish at full speed, beside a worker that tries to sleep."""

from collections.abc import Set
from typing import Final

from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction
from partbox_lab.bench.concurrent_publishers import CLIENTS, publish_concurrently
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared

WHAT: Final = f"of {CLIENTS} clients, publishers' bell on vs off, beside a worker"
TRANSACTION: Final = Budget("bell-transaction", f"an update and a publish {WHAT}", Direction.AT_LEAST, 0.95)
PUBLISH: Final = Budget("bell-publish", f"a bare publish {WHAT}", Direction.AT_LEAST, 0.9)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    database.fresh()
    with BenchNode(database, database.outbox(ignore, bell="on"), 1):
        for budget in (TRANSACTION, PUBLISH):
            if budget.name in wanted:
                on, off = publish_concurrently(database, updates=budget is TRANSACTION)
                yield compared(budget.name, ("on", on), ("off", off))


GROUP: Final = LineGroup((TRANSACTION, PUBLISH), _measure)
