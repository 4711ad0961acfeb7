"""Moves, duplicates and reordered events while processes join and leave and a node restarts under load."""

from collections.abc import Iterable, Sequence, Set
from typing import Final, NamedTuple

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import Notebook, Noted, NoteTaker
from partbox_lab.bench.node import ALL, BenchNode
from partbox_lab.bench.sender import Sender, SendingTask, aggregate, sending
from partbox_lab.bench.statements import BenchPartition

MOVES: Final = Budget("rebalance-moves", "partitions moved on join and leave beyond the minimum", Direction.AT_MOST, 0)
DUPLICATES: Final = Budget(
    "restart-duplicates", "graceful restart and rebalance under load: duplicates", Direction.AT_MOST, 0
)
REORDERED: Final = Budget(
    "restart-reordered", "graceful restart and rebalance under load: reordered", Direction.AT_MOST, 0
)
UNDER_LOAD: Final = 1.0  # seconds between two changes
TO_ARRIVE: Final = 60.0  # seconds


class OrderVerdict(NamedTuple):
    """The verdict on deliveries: distinct events, duplicates, and events after a later one of their aggregate."""

    events: int
    duplicates: int
    reordered: int


def judge(notes: Iterable[Noted], clients: int) -> OrderVerdict:
    """Judge deliveries, in the order in which the handlers ran."""
    seen: set[int] = set()
    last: dict[str, int] = {}
    duplicates = reordered = 0
    for note in notes:
        if note.number in seen:
            duplicates += 1
            continue
        seen.add(note.number)
        key = aggregate(note.number, clients)
        if note.number < last.get(key, -1):
            reordered += 1
        last[key] = max(note.number, last.get(key, -1))
    return OrderVerdict(len(seen), duplicates, reordered)


def moved(before: Sequence[BenchPartition], after: Sequence[BenchPartition]) -> int:
    """Return the number of partitions that were claimed again. Every claim increments the epoch."""
    epochs = {each.partition: each.epoch for each in before}
    return sum(each.epoch != epochs.get(each.partition) for each in after)


class _Changes:
    """Joins and leaves of the third process."""

    def __init__(self, database: BenchDatabase, node: BenchNode) -> None:
        self._database = database
        self._node = node

    def join(self) -> tuple[int, int]:
        """Add a third process. Return the number of moved partitions, and the least possible number."""
        before = self._owners()
        self._node.scale(3)
        return moved(before, self._owners()), ALL // 3

    def leave(self) -> tuple[int, int]:
        """Remove the youngest process. Return the number of moved partitions, and the number that it owned."""
        before = self._owners()
        self._node.scale(2)
        after = self._owners()
        staying = {each.owner for each in after}
        return moved(before, after), sum(each.owner not in staying for each in before)

    def _owners(self) -> list[BenchPartition]:
        return statements.owners(self._database.conn, self._database.schema)


def _moves(database: BenchDatabase, node: BenchNode) -> Results:
    changes = _Changes(database, node)
    database.pause(UNDER_LOAD)
    (joined, least), (left, had) = changes.join(), changes.leave()
    note = f"join: {joined} moved, at least {least} had to; leave: {left}, at least {had}"
    yield Measured(MOVES.name, float(joined - least + left - had), note)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    """Run two processes under load, then three, then two again. Then stop the node in order and start another."""
    database.fresh()
    notebook, path = Notebook(database.folder / "cluster"), database.folder / "sent-cluster"
    outbox, rate = database.outbox(NoteTaker(notebook.path)), float(database.sizes.load)
    with sending(database.dsn, database.schema, rate, None, path) as sender:
        with BenchNode(database, outbox, 2) as node:
            yield from (each for each in _moves(database, node) if each.name in wanted)
        if wanted == {MOVES.name}:
            return
        with BenchNode(database, outbox, 2) as node:
            database.pause(UNDER_LOAD)
            sender.stop()
            notes = _arrived(database, notebook, sender)
    found = judge(notes, SendingTask(database.dsn, database.schema, rate, None, path).clients)
    note = f"{found.events:,} events while a process joined, one left, and the node restarted"
    results = (Measured(DUPLICATES.name, found.duplicates, note), Measured(REORDERED.name, found.reordered, note))
    yield from (each for each in results if each.name in wanted)


def _arrived(database: BenchDatabase, notebook: Notebook, sender: Sender) -> list[Noted]:
    """Wait until every committed event is delivered, and return all deliveries."""
    notes: list[Noted] = []
    sent = sender.sent().keys()

    def all_arrived() -> bool:
        notes.extend(notebook.new())
        return sent <= {note.number for note in notes}

    database.until(all_arrived, "delivering", TO_ARRIVE, look=0.25)
    return notes


GROUP = LineGroup((MOVES, DUPLICATES, REORDERED), _measure)
