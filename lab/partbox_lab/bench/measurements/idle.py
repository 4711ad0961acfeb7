"""CPU and statements of an idle process."""

import time
from collections.abc import Set
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import total
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode

CPU: Final = Budget("idle-cpu", "CPU of an idle process, of a core", Direction.AT_MOST, 0.5, "%")
STATEMENTS: Final = Budget("idle-statements", "statements that an idle process sends", Direction.AT_MOST, 6, "/s")
# Transactions per second of others, above which the few of ours cannot be measured.
BUSY: Final = 200.0
OTHERS = "other sessions run {:,.0f} transactions a second in this database, and the server counts all of them together"


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    database.fresh()
    with BenchNode(database, database.outbox(ignore), 1) as node:
        database.pause(database.sizes.calm)
        before, alone = total(node.pids), _transactions(database)
        passed, beside = alone
        spent = total(node.pids) - before
        if CPU.name in wanted:
            yield Measured(CPU.name, 100 * spent / passed, f"for {passed:.1f} s")
        if STATEMENTS.name not in wanted:
            return
        if beside > BUSY:
            yield Unmeasured(STATEMENTS.name, OTHERS.format(beside))
            return
        node.scale(2)
        database.pause(database.sizes.calm)
        passed, two = _transactions(database)
    note = f"what a second process adds within {passed:.1f} s, so without what a node sends"
    yield Measured(STATEMENTS.name, max(0.0, two - beside), note)


def _transactions(database: BenchDatabase) -> tuple[float, float]:
    """Return the seconds that passed, and the transactions per second in this database."""
    before, began = statements.transactions(database.conn, database.schema), time.monotonic()
    database.pause(database.sizes.idle)
    ended, passed = statements.transactions(database.conn, database.schema) - before, time.monotonic() - began
    return passed, ended / passed


GROUP = LineGroup((CPU, STATEMENTS), _measure)
