"""Delivery beside thousands of open transactions, each of which every snapshot lists."""

from collections.abc import Set
from statistics import median
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, between, by_process, is_here
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode

THOUSAND: Final = Budget(
    "open-1000",
    "CPU of the server for an event of a drain beside 1,000 open transactions vs beside none",
    Direction.AT_MOST,
    6,
)
THOUSANDS: Final = Budget(
    "open-5000",
    "CPU of the server for an event of a drain beside 5,000 open transactions vs beside none",
    Direction.AT_MOST,
    25,
)


def _cost(database: BenchDatabase, opened: int) -> float:
    """Return the CPU of the server for an event of a drain, in microseconds."""
    events, costs = database.sizes.growth.beside, list[float]()
    database.fresh()
    database.say(f"  {opened} transactions are open ...")
    statements.leave_open(database.conn, opened)
    with BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1) as node:
        for _ in range(database.sizes.rounds):
            start = statements.position(database.conn, database.schema)
            database.load(events)
            before = _server(database)
            node.drain(start)
            costs.append(between(before, _server(database)) / events * 1e6)
    return median(costs)


def _server(database: BenchDatabase) -> dict[int, float]:
    found = statements.backends(database.conn, database.schema, database.name)
    return by_process(each.pid for each in found)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if not is_here(statements.backend(database.conn, database.schema)):
        for name in sorted(wanted):
            yield Unmeasured(name, ELSEWHERE)
        return
    numbers = dict(zip((THOUSAND.name, THOUSANDS.name), database.sizes.growth.open_transactions, strict=True))
    most = max(numbers[name] for name in wanted)
    # Transactions that were prepared stay open without a connection each. A server that allows them has another bell.
    with database.other_server(max_prepared_transactions=str(most + 1)) as other:
        alone = _cost(other, 0)
        for name in sorted(wanted):
            beside = _cost(other, numbers[name])
            note = f"{beside:.1f} us beside {numbers[name]:,}, {alone:.1f} us beside none"
            yield Measured(name, beside / alone, note, {"beside": beside, "alone": alone})


GROUP: Final = LineGroup((THOUSAND, THOUSANDS), _measure)
