"""Commands that look at every subscription, and purges, with many subscriptions of one log."""

import time
from collections.abc import Callable, Mapping, Set
from statistics import median
from typing import Final

import psutil

from partbox.db.delivery import server_incarnation
from partbox.db.operator import purge as steps
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import LONG_TRANSACTION, limits_of
from partbox.operations.purge import list_segments, purge
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, cpu_seconds, is_here, total
from partbox_lab.bench.group import LineGroup, Results

COMMANDS: Final = Budget(
    "subscriptions-commands",
    "CPU of client and server for doctor, subscription list, find, segments and purge --dry-run with 200 subscriptions "
    "vs with one",
    Direction.AT_MOST,
    2,
)
PURGE: Final = Budget(
    "subscriptions-purge",
    "CPU of the server for a purged record with 1,000 subscriptions vs with one",
    Direction.AT_MOST,
    1.2,
)
DAY: Final = 86_400.0
TO_END: Final = 10.0  # seconds


def _subscribe(database: BenchDatabase, number: int) -> None:
    """Create subscriptions until there are `number` of them, which have consumed the log."""
    manager = database.outbox().subscriptions
    for each in range(len(manager.list()), number):
        database.check()
        manager.create(f"number-{each}", "now")
    database.rewind(statements.position(database.conn, database.schema))


def _server(database: BenchDatabase) -> float:
    """Return the CPU seconds of all processes of the server, once the sessions of commands have ended."""
    name = database.name
    database.until(lambda: not statements.backends(database.conn, database.schema, name), "a session's end", TO_END)
    postmaster = psutil.Process(statements.backend(database.conn, database.schema).pid).parent()
    assert postmaster is not None
    ended = postmaster.cpu_times()
    return float(ended.children_user + ended.children_system) + total(each.pid for each in postmaster.children())


def _cost(database: BenchDatabase, command: Callable[[], object]) -> float:
    """Return the CPU of this process and of the server for a command, in milliseconds."""
    command()
    rounds = 4 * database.sizes.rounds
    here, there = time.process_time(), _server(database)
    for _ in range(rounds):
        command()
    return (time.process_time() - here + _server(database) - there) / rounds * 1e3


def _costs(database: BenchDatabase) -> Mapping[str, float]:
    outbox = database.outbox(retain_done=DAY)
    settings = outbox.settings

    def dsn() -> str:
        return str(settings.dsn)

    limits = limits_of(settings, LONG_TRANSACTION)
    commands: dict[str, Callable[[], object]] = {
        "doctor": lambda: examine_outbox(dsn, settings, limits),
        "subscription list": outbox.subscriptions.list,
        "find": lambda: outbox.records.find(limit=1),
        "segments": lambda: list_segments(dsn, settings),
        "purge --dry-run": lambda: purge(dsn, settings, dry_run=True),
    }
    return {name: _cost(database, command) for name, command in commands.items()}


def _commands(database: BenchDatabase) -> Results:
    number = database.sizes.growth.commanded
    database.fresh()
    database.load(database.sizes.growth.beside)
    _subscribe(database, 1)
    alone = _costs(database)
    database.say(f"  {number} subscriptions are looked at ...")
    _subscribe(database, number)
    beside = _costs(database)
    said = ", ".join(f"{name} {beside[name]:.0f} ms, with one {alone[name]:.0f}" for name in alone)
    ratio = sum(beside.values()) / sum(alone.values())
    data = {"beside": [*beside.values()], "alone": [*alone.values()]}
    yield Measured(COMMANDS.name, ratio, f"{number}: {said}", data)


def _purged(database: BenchDatabase) -> float:
    """Return the CPU of the server for a record that a purge deletes, in microseconds."""
    conn, schema, batch = database.conn, database.schema, database.outbox().settings.purge_batch
    pid, costs = statements.backend(conn, schema).pid, list[float]()
    for _ in range(database.sizes.rounds):
        database.load(database.sizes.growth.beside)
        database.rewind(statements.position(conn, schema))
        deleted, before = 0, cpu_seconds(pid)
        place: list[int] | None = [*steps.START_POSITION]
        while place is not None:
            database.check()
            step = steps.run_step(conn, "records", schema, place, retain=0, retain_dead=0, batch=batch, dry_run=False)
            assert step is not None
            deleted, place = deleted + step.deleted, step.next_place
        costs.append((cpu_seconds(pid) - before) / deleted * 1e6)
    return median(costs)


def _purge(database: BenchDatabase) -> Results:
    number = database.sizes.growth.purged
    database.fresh()
    # A worker has connected to this server: a purge keeps the bounds of a step only in a known incarnation.
    server_incarnation.read_incarnation(database.conn, database.schema)
    alone = _purged(database)
    database.say(f"  a purge beside {number} subscriptions ...")
    _subscribe(database, number)
    beside = _purged(database)
    note = f"{beside:.1f} us a record with {number:,} subscriptions, {alone:.1f} us with one"
    yield Measured(PURGE.name, beside / alone, note, {"beside": beside, "alone": alone})


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if not is_here(statements.backend(database.conn, database.schema)):
        for name in sorted(wanted):
            yield Unmeasured(name, ELSEWHERE)
        return
    if COMMANDS.name in wanted:
        yield from _commands(database)
    if PURGE.name in wanted:
        yield from _purge(database)


GROUP: Final = LineGroup((COMMANDS, PURGE), _measure)
