"""Processes that join, leave and are killed under load, again and again.

The lines are the time until all partitions run at their new owners, and the pauses of the partitions that move and of
the others."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import Notebook, Noted, NoteTaker
from partbox_lab.bench.handover import Change, Pauses, distribution, judge, told
from partbox_lab.bench.node import ALL, BenchNode
from partbox_lab.bench.paced_publisher import PacedPublisher

JOIN: Final = Budget("rebalance-join", "processes join: until all partitions run, p99", Direction.AT_MOST, 1, "s")
LEAVE: Final = Budget("rebalance-leave", "a process leaves: until all partitions run, p99", Direction.AT_MOST, 1, "s")
CRASH: Final = Budget("rebalance-crash", "a process is killed: until all run elsewhere, p99", Direction.AT_MOST, 1, "s")
MOVED: Final = Budget(
    "rebalance-moved", "longest delay of an event of a partition that moves, p99", Direction.AT_MOST, 250, "ms"
)
UNMOVED: Final = Budget(
    "rebalance-unmoved", "the same of a partition that does not move, p99", Direction.AT_MOST, 100, "ms"
)
CALM: Final = 1.0  # seconds before a change
AFTER: Final = 0.3  # seconds after a change, observed and then waited for stragglers
FEW: Final = 8  # processes, up to which the beat is the usual one
# The factor for more processes, and for kills, after which unsaved events run again a few at a time.
SLOWER: Final = 4
MILLISECONDS: Final = 1e3


class Rehearsal:
    """A node under load from a paced publisher, whose processes come and go."""

    def __init__(self, database: BenchDatabase, node: BenchNode, notebook: Notebook, publisher: PacedPublisher) -> None:
        self._database = database
        self._node = node
        self._notebook = notebook
        self._publisher = publisher

    def join(self, processes: int) -> Pauses:
        """Scale up and return the pauses. The change begins when the first new process has registered, and is complete
        when the last one has."""
        database = self._database
        members = statements.ages(database.conn, database.schema).keys()
        notes = self._calm()
        self._node.scale(processes)
        now, ages = time.monotonic_ns(), statements.ages(database.conn, database.schema)
        arrived = [now - int(age * 1e9) for instance, age in ages.items() if instance not in members]
        return self._judged(notes, min(arrived), max(arrived))

    def leave(self, processes: int) -> Pauses:
        """Scale down and return the pauses. The youngest processes leave."""
        notes = self._calm()
        began = time.monotonic_ns()
        self._node.scale(processes)
        return self._judged(notes, began, began)

    def crash(self) -> Pauses:
        """Kill a process and return the pauses. The effect of its replacement is not measured."""
        notes, victim = self._calm(), self._node.pids[-1]
        theirs = {note.partition for note in notes if note.pid == victim}
        began = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)

        def elsewhere() -> bool:
            notes.extend(self._notebook.new())
            return theirs <= {note.partition for note in notes if note.at > began and note.pid != victim}

        self._database.until(elsewhere, "taking over the partitions", look=0.02)
        found = judge(notes, self._publisher.beats, Change(began, began, time.monotonic_ns()))
        self._node.gather()
        return found

    def _calm(self) -> list[Noted]:
        """Wait without a change and return the deliveries of that time."""
        [*self._notebook.new()]
        self._database.pause(CALM)
        return [*self._notebook.new()]

    def _judged(self, notes: list[Noted], began: int, complete: int) -> Pauses:
        self._database.pause(AFTER)
        ended = time.monotonic_ns()
        self._database.pause(AFTER)
        notes.extend(self._notebook.new())
        return judge(notes, self._publisher.beats, Change(began, complete, ended))


@contextmanager
def rehearsal(database: BenchDatabase, processes: int, period: float) -> Iterator[Rehearsal]:
    """Start `processes` on a fresh log, with one event for each partition every `period` seconds."""
    database.fresh()
    name = f"{processes}-{time.monotonic_ns()}"
    notebook = Notebook(database.folder / f"notes-{name}")
    outbox = database.outbox(NoteTaker(notebook.path))
    with (
        BenchNode(database, outbox, processes) as node,
        PacedPublisher(database.dsn, database.schema, period, database.folder / f"beats-{name}") as publisher,
    ):
        database.until(lambda: len({note.partition for note in notebook.new()}) == ALL, "delivering")
        yield Rehearsal(database, node, notebook, publisher)


def to_and_fro(database: BenchDatabase, few: int, many: int, rounds: int) -> dict[str, Pauses]:
    """Scale from `few` to `many` and back, `rounds` times, and return the pauses of either change."""
    joins, leaves = Pauses(), Pauses()
    with rehearsal(database, few, database.sizes.growth.beat * (1 if many <= FEW else SLOWER)) as scene:
        for _ in range(rounds):
            joins.add(scene.join(many))
            leaves.add(scene.leave(few))
    return {f"{few} to {many}": joins, f"{many} to {few}": leaves}


def crashes(database: BenchDatabase, processes: int, rounds: int) -> dict[str, Pauses]:
    """Kill one of the processes, `rounds` times, and return the pauses."""
    found = Pauses()
    with rehearsal(database, processes, database.sizes.growth.beat * SLOWER) as scene:
        for _ in range(rounds):
            found.add(scene.crash())
    return {f"one of {processes} killed": found}


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    sizes = database.sizes.growth
    joins: dict[str, Pauses] = {}
    leaves: dict[str, Pauses] = {}
    killed: dict[str, Pauses] = {}
    for few, many in sizes.rebalances:
        database.say(f"  {few} and {many} processes in turn ...")
        (join, its), (leave, others) = to_and_fro(database, few, many, sizes.changes).items()
        joins[join], leaves[leave] = its, others
    if wanted & {CRASH.name, MOVED.name, UNMOVED.name}:
        database.say("  killing processes ...")
        killed |= crashes(database, sizes.rebalances[0][1], sizes.changes)
    found = [_time(JOIN, joins), _time(LEAVE, leaves), *([_time(CRASH, killed)] if killed else [])]
    if killed:
        found += [_moved(joins | leaves | killed), _unmoved(joins | leaves | killed)]
    yield from (each for each in found if each.name in wanted)


def _time(budget: Budget, found: Mapping[str, Pauses]) -> Measured:
    values = {name: each.settled for name, each in found.items()}
    worst = max(distribution(each)[2] for each in values.values())
    return Measured(budget.name, worst, told(values, "s"), details=values)


def _moved(found: Mapping[str, Pauses]) -> Measured:
    values = _in_milliseconds(found, lambda each: each.moved)
    return Measured(MOVED.name, max(distribution(each)[2] for each in values.values()), told(values, "ms"), values)


def _unmoved(found: Mapping[str, Pauses]) -> Measured:
    during = _in_milliseconds(found, lambda each: each.unmoved)
    before = _in_milliseconds(found, lambda each: each.before)
    worst = max(distribution(each)[2] for each in during.values())
    note = "; ".join(told({name: during[name], "before": before.get(name, [])}, "ms") for name in during)
    return Measured(UNMOVED.name, worst, note, during)


def _in_milliseconds(found: Mapping[str, Pauses], kind: Callable[[Pauses], list[float]]) -> dict[str, list[float]]:
    return {name: [MILLISECONDS * each for each in kind(pauses)] for name, pauses in found.items() if kind(pauses)}


GROUP: Final = LineGroup((JOIN, LEAVE, CRASH, MOVED, UNMOVED), _measure)
