"""Events in trouble: delayed, failed and tried again, dead and replayed, and the purge of their attempts."""

from collections.abc import Set
from statistics import median
from typing import Any, Final

from partbox.db.operator import purge as steps
from partbox.events import DeliveredEvent
from partbox.outcomes import Dead
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, cpu_seconds, is_here
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode

DELAYED: Final = Budget(
    "trouble-delayed",
    "CPU of worker and server for an event whose time has come",
    Direction.AT_MOST,
    35,
    "µs",
)
FAILED: Final = Budget(
    "trouble-failed",
    "CPU of worker and server for an event that fails once, both attempts",
    Direction.AT_MOST,
    100,
    "µs",
)
REPLAYED: Final = Budget(
    "trouble-replayed",
    "CPU of worker and server for an event that was dead and is replayed",
    Direction.AT_MOST,
    35,
    "µs",
)
ATTEMPTS: Final = Budget(
    "trouble-attempts",
    "CPU of the server to purge an attempt whose record is gone",
    Direction.AT_MOST,
    8,
    "µs",
)
AGGREGATES: Final = 5_000  # of delayed events
DELAY: Final = 600.0  # seconds, longer than any parking takes
TO_PARK: Final = 300.0  # seconds


def fail_once(event: DeliveredEvent) -> None:
    """Fail the first attempt of every event."""
    if event.attempt == 1:
        raise RuntimeError("the bench lets the first attempt fail")


def give_up(event: DeliveredEvent) -> Dead:
    """Let every event be dead."""
    return Dead("the bench lets the event be dead")


def _wait_for_parked(database: BenchDatabase, events: int, purpose: str) -> None:
    database.until(lambda: statements.parked(database.conn, database.schema) == events, purpose, TO_PARK)


def _delayed(database: BenchDatabase) -> Results:
    """Measure from when all events are parked and become due until all are done."""
    events, costs = database.sizes.growth.troubled, list[float]()
    database.fresh()
    with BenchNode(database, database.outbox(ignore), 1) as node:
        for _ in range(database.sizes.rounds):
            statements.load_troubled(database.conn, database.schema, events, AGGREGATES, DELAY)
            _wait_for_parked(database, events, "parking")
            before = node.spent()
            statements.make_due(database.conn, database.schema)
            _wait_for_parked(database, 0, "delivering")
            costs.append((node.spent() - before) / events * 1e6)
    yield Measured(DELAYED.name, median(costs), f"{events:,} events that are due together", {"costs": costs})


def _failed(database: BenchDatabase) -> Results:
    """Measure from the commit of the events until all are done. Each has an aggregate of its own, so none waits behind
    another."""
    events, costs = database.sizes.growth.troubled, list[float]()
    database.fresh()
    with BenchNode(database, database.outbox(fail_once, retry="fixed:1"), 1) as node:
        for _ in range(database.sizes.rounds):
            before = node.spent()
            statements.load_troubled(database.conn, database.schema, events, events)
            database.until(node.empty, "delivering", TO_PARK)
            costs.append((node.spent() - before) / events * 1e6)
    yield Measured(FAILED.name, median(costs), f"{events:,} events, each with two attempts", {"costs": costs})


def _replayed(database: BenchDatabase) -> Results:
    """Measure from the first replayed event until all are done. The command that replays them is not counted."""
    events, costs = database.sizes.growth.troubled, list[float]()
    database.fresh()
    for _ in range(database.sizes.rounds):
        with BenchNode(database, database.outbox(give_up), 1):
            statements.load_troubled(database.conn, database.schema, events, events)
            _wait_for_parked(database, events, "parking")
        outbox = database.outbox(ignore)
        with BenchNode(database, outbox, 1) as node:
            before = node.spent()
            outbox.dead.replay_all(progress=lambda done, total: database.check())
            _wait_for_parked(database, 0, "delivering")
            costs.append((node.spent() - before) / events * 1e6)
    yield Measured(REPLAYED.name, median(costs), f"{events:,} events that were dead", {"costs": costs})


def _attempts(database: BenchDatabase) -> Results:
    conn, schema, batch = database.conn, database.schema, database.outbox().settings.purge_batch
    number, costs = database.sizes.growth.troubled, list[float]()
    pid = statements.backend(conn, schema).pid
    database.fresh()
    for _ in range(database.sizes.rounds):
        statements.fill_attempts(conn, schema, number)
        deleted, before = 0, cpu_seconds(pid)
        place: Any = steps.START_POSITION
        while place is not None:
            database.check()
            step = steps.run_step(conn, "history", schema, place, table="attempt", retain=0, batch=batch, dry_run=False)
            assert step is not None
            deleted, place = deleted + step.deleted, step.next_place
        costs.append((cpu_seconds(pid) - before) / deleted * 1e6)
    yield Measured(ATTEMPTS.name, median(costs), f"{number:,} attempts", {"costs": costs})


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if not is_here(statements.backend(database.conn, database.schema)):
        for name in sorted(wanted):
            yield Unmeasured(name, ELSEWHERE)
        return
    lines = (DELAYED, _delayed), (FAILED, _failed), (REPLAYED, _replayed), (ATTEMPTS, _attempts)
    for line, measure in lines:
        if line.name in wanted:
            yield from measure(database)


GROUP: Final = LineGroup((DELAYED, FAILED, REPLAYED, ATTEMPTS), _measure)
