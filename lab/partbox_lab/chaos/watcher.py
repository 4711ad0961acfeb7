"""A thread that watches the cluster's tables for lost instances and for cursors or epochs that went back."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg

from partbox.platform import boottime as now
from partbox_lab.chaos import statements
from partbox_lab.chaos.explained_duplicates import Disturbance
from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.workspace import Workspace

ROLE: Final = "watcher"
LOOK = 0.2  # seconds
LOST: Final = "lease lost, or process dead"


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """One partition's row: cursor, epoch, and whether it has an owner."""

    partition: int
    epoch: int
    last_id: int
    floor_id: int
    xmax: int
    owned: bool


@dataclass(frozen=True, slots=True)
class Regress:
    """A stale write that was accepted: the column `what` of a partition went from `before` to `after`."""

    partition: int
    what: str
    before: int
    after: int


# Cursors may go back after a crash of the server, since they are saved asynchronously. Epochs never may. A snapshot may
# while the last id rises, as a late unfinished record below holds it back.
def regresses(before: Mapping[int, StoredCursor], after: Mapping[int, StoredCursor], crashed: bool) -> list[Regress]:
    """Return the stored numbers that went back, though nothing permits it."""
    return [one for number, old in before.items() for one in _regresses(old, after[number], crashed)]


def _regresses(old: StoredCursor, new: StoredCursor, crashed: bool) -> Iterator[Regress]:
    if new.epoch < old.epoch:
        yield Regress(old.partition, "epoch", old.epoch, new.epoch)
    if crashed:
        return
    if new.last_id < old.last_id:
        yield Regress(old.partition, "last_id", old.last_id, new.last_id)
    elif new.last_id == old.last_id and new.xmax < old.xmax:
        yield Regress(old.partition, "xmax", old.xmax, new.xmax)


def forgotten(deliveries: Sequence[HandlerCall], cursors: Mapping[int, StoredCursor]) -> list[Regress]:
    """Return the partitions whose stored epoch is below an epoch that a handler has seen."""
    shown: dict[int, int] = {}
    for one in deliveries:
        shown[one.partition] = max(one.epoch, shown.get(one.partition, 0))
    return [
        Regress(partition, "epoch", epoch, cursors[partition].epoch)
        for partition, epoch in shown.items()
        if cursors[partition].epoch < epoch
    ]


@dataclass(slots=True)
class _Member:
    pid: int
    node: str
    heard: float  # of its last heartbeat; the row stays until a node buries it


class Watcher(threading.Thread):
    """A thread that polls instances and cursors. The end of an instance is no loss if `leaving(node)` is true."""

    def __init__(self, place: Workspace, leaving: Callable[[str], bool]) -> None:
        super().__init__(name="chaos-watcher", daemon=True)
        self._place = place
        self._leaving = leaving
        self._members: dict[UUID, _Member] = {}
        self._cursors: dict[int, StoredCursor] = {}
        self._crashed = False
        self.stopping = threading.Event()
        self.losses: list[Disturbance] = []
        self.stale_saves: list[Regress] = []
        self.error: Exception | None = None

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                with self._place.connect(ROLE) as conn:
                    self._look(conn, self._crashed)
                    self._crashed = False
                    while not self.stopping.wait(LOOK):
                        self._look(conn)
            except psycopg.OperationalError:
                self.stopping.wait(LOOK)
            except Exception as error:
                self.error = error
                return

    def crashed(self, so: bool = True) -> None:
        """Expect, or no longer expect, that a crash loses asynchronous commits before the next session."""
        self._crashed = so

    @property
    def settled(self) -> bool:
        """True if all partitions have an owner."""
        return bool(self._cursors) and all(cursor.owned for cursor in self._cursors.values())

    def pids(self, node: str) -> list[int]:
        """Return the process ids of a node's instances, which are worker processes."""
        return sorted(member.pid for member in self._members.copy().values() if member.node == node)

    def owners(self) -> int:
        """Return the number of instances."""
        return len(self._members)

    @property
    def cursors(self) -> dict[int, StoredCursor]:
        """The cursors of the last look, by partition."""
        return self._cursors

    def _look(self, conn: psycopg.Connection[Any], crashed: bool = False) -> None:
        asked = now()
        members = statements.instances(conn, self._place.schema)
        cursors = read(conn, self._place.schema)
        self._compare(members, asked)
        if self._cursors:
            self.stale_saves += regresses(self._cursors, cursors, crashed)
        self._cursors = cursors

    def _compare(self, members: Sequence[tuple[UUID, str, int, float]], asked: float) -> None:
        """Note a loss, from the last heartbeat on, for each instance that is gone without a request to leave."""
        there = {id: _Member(pid, node, asked - silent) for id, node, pid, silent in members}
        for id, gone in self._members.items():
            if id not in there and not self._leaving(gone.node):
                self.losses.append(Disturbance(LOST, gone.heard, now(), gone.pid))
        self._members = there


def read(conn: psycopg.Connection[Any], schema: str) -> dict[int, StoredCursor]:
    """Read the cursors of all partitions, by number."""
    cursors = [StoredCursor(*row) for row in statements.cursors(conn, schema)]
    return {cursor.partition: cursor for cursor in cursors}
