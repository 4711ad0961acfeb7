"""Many subscriptions of one log, one far behind beside a live one, one of a single type, and one that begins now."""

import time
from collections.abc import Set
from statistics import mean
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, is_here
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import Notebook, Noted, NoteTaker, dawdle, ignore
from partbox_lab.bench.idle_instances import IdleInstances, idle_instances, most
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import latencies, quantile
from partbox_lab.bench.sender import name_type, sending

MANY: Final = Budget(
    "subscriptions-cpu",
    "CPU of the server for an event in one of 50 subscriptions vs in the only one, at 100 events/s",
    Direction.AT_MOST,
    1.2,
)
BEHIND: Final = Budget(
    "behind-latency",
    "median latency beside a subscription that is far behind vs without it, at 100 events/s",
    Direction.AT_MOST,
    1.5,
)
TYPES: Final = Budget(
    "subscription-types",
    "CPU of worker and server for a subscription of one type in ten vs of all types, at 100 events/s",
    Direction.AT_MOST,
    0.3,
)
LATE: Final = Budget(
    "subscription-late",
    "rows and index entries read for a subscription from now on, per record of a log that nobody has read",
    Direction.AT_MOST,
    1,
)
RATE: Final = 100.0  # events per second
OTHER: Final = "behind"
TYPED: Final = "typed"
NUMBER_OF_TYPES: Final = 10
EVENTS: Final = 1_000  # of a subscription from now on
TO_ARRIVE: Final = 60.0  # seconds


def _busy(database: BenchDatabase, members: IdleInstances, name: str) -> float:
    """Return the CPU seconds of the server for the instances per second, with 100 events per second."""
    with sending(database.dsn, database.schema, RATE, None, database.folder / name) as sender:
        database.until(lambda: bool(sender.sent()), "the first event", TO_ARRIVE)
        database.pause(database.sizes.calm)
        before, began = members.server(), time.monotonic()
        database.pause(database.sizes.growth.standing)
        return (members.server() - before) / (time.monotonic() - began)


def _many(database: BenchDatabase) -> Results:
    if not is_here(statements.backend(database.conn, database.schema)):
        yield Unmeasured(MANY.name, ELSEWHERE)
        return
    database.fresh()
    number = most(database, database.sizes.growth.subscriptions)
    names = [f"number-{each}" for each in range(1, number)]
    with idle_instances(database) as members:
        members.join(["default"])
        alone = _busy(database, members, "sent-alone")
        manager = database.outbox().subscriptions
        for name in names:
            manager.create(name, "now")
        database.say(f"  {number} subscriptions are read ...")
        members.join(names)
        together = _busy(database, members, "sent-together")
    said = f"{number} subscriptions {100 * together:.1f} % of a core, one {100 * alone:.1f} %"
    yield Measured(MANY.name, together / number / alone, said, {"together": together, "alone": alone})


def _latency(database: BenchDatabase, notebook: Notebook, name: str) -> float:
    """Return the median latency of the live subscription, in milliseconds."""
    arrived: dict[int, int] = {}
    [*notebook.new()]
    seconds = database.sizes.growth.standing
    with sending(database.dsn, database.schema, RATE, seconds, database.folder / name) as sender:
        database.until(lambda: sender.ended, "publishing", seconds + TO_ARRIVE)
        sent = sender.sent()

    def all_arrived() -> bool:
        for note in notebook.new():
            arrived.setdefault(note.number, note.at)
        return sent.keys() <= arrived.keys()

    database.until(all_arrived, "delivering", TO_ARRIVE)
    return quantile(latencies(sent, arrived), 0.5)


def _behind(database: BenchDatabase) -> Results:
    """Compare the latency beside a slow subscription with that before and after. The slow handler needs hours for the
    backlog."""
    backlog = database.sizes.growth.behind
    database.fresh()
    database.load(backlog)
    database.rewind(statements.position(database.conn, database.schema))
    database.outbox().subscriptions.create(OTHER, "beginning")
    notebook = Notebook(database.folder / "behind")
    with BenchNode(database, database.outbox(NoteTaker(notebook.path)), 1):
        without = [_latency(database, notebook, "sent-before")]
        with idle_instances(database, dawdle) as slow:
            slow.join([OTHER])
            beside = _latency(database, notebook, "sent-beside")
        without.append(_latency(database, notebook, "sent-after"))
    plain = mean(without)
    note = f"{beside:.2f} ms, without {plain:.2f} ms; {backlog:,} events behind, read by a handler that takes its time"
    yield Measured(BEHIND.name, beside / plain, note, {"beside": beside, "without": without})


def _of_types(database: BenchDatabase) -> Results:
    """Compare a node of all types and then one of a single type, each beside the same stream of events."""
    if not is_here(statements.backend(database.conn, database.schema)):
        yield Unmeasured(TYPES.name, ELSEWHERE)
        return
    database.fresh()
    database.outbox().subscriptions.create(TYPED, "now", types=[name_type(0, NUMBER_OF_TYPES)])
    costs = {name: _spent(database, name) for name in ("default", TYPED)}
    note = f"{100 * costs[TYPED]:.1f} % of a core, {100 * costs['default']:.1f} % with all types"
    yield Measured(TYPES.name, costs[TYPED] / costs["default"], note, costs)


def _spent(database: BenchDatabase, name: str) -> float:
    """Return the CPU seconds of a node and of its server processes per second, with 100 events per second."""
    path = database.folder / f"sent-{name}"
    with (
        BenchNode(database, database.outbox(ignore, name), 1, subscription=name) as node,
        sending(database.dsn, database.schema, RATE, None, path, NUMBER_OF_TYPES) as sender,
    ):
        database.until(lambda: bool(sender.sent()), "the first event", TO_ARRIVE)
        database.pause(database.sizes.calm)
        before, began = node.spent(), time.monotonic()
        database.pause(database.sizes.growth.standing)
        return (node.spent() - before) / (time.monotonic() - began)


def _late(database: BenchDatabase) -> Results:
    """Count the rows and index entries of the log that are read until the events after it have arrived."""
    records = database.sizes.growth.beside
    database.fresh()
    database.load(records)
    before = statements.entries_read(database.conn, database.schema)
    database.outbox().subscriptions.create(OTHER, "now")
    notebook, arrived = Notebook(database.folder / "late"), list[Noted]()

    def all_arrived() -> bool:
        arrived.extend(notebook.new())
        return len(arrived) >= EVENTS

    with BenchNode(database, database.outbox(NoteTaker(notebook.path), OTHER), 1, subscription=OTHER):
        statements.load(database.conn, database.schema, 1, EVENTS)
        database.until(all_arrived, "delivering", TO_ARRIVE)
    # A session publishes its statistics when it ends, so they are read after the node has stopped.
    read = statements.entries_read(database.conn, database.schema) - before
    yield Measured(LATE.name, read / records, f"{read:,} above {records:,} records, with {EVENTS:,} events after them")


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if MANY.name in wanted:
        yield from _many(database)
    if BEHIND.name in wanted:
        yield from _behind(database)
    if TYPES.name in wanted:
        yield from _of_types(database)
    if LATE.name in wanted:
        yield from _late(database)


GROUP: Final = LineGroup((MANY, BEHIND, TYPES, LATE), _measure)
