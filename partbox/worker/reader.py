"""Reads the log: one poll for all partitions in lockstep, one of their own for those just claimed."""

import time
from collections.abc import Sequence
from typing import Any

from psycopg import Connection

from partbox.db import records
from partbox.db.blocking import Row
from partbox.db.records import Look
from partbox.observe import Observers
from partbox.rules.horizon import Horizon, Snapshot
from partbox.settings import Settings
from partbox.worker.dispatcher import Dispatcher
from partbox.worker.holdings import Holdings
from partbox.worker.intake import Intake
from partbox.worker.partition import Partition
from partbox.worker.room import Room

LOOK_AGAIN = 0.05  # on a backlog the newest fence serves for so many seconds


class Reader:
    """Reads what is new for the partitions of one process. The poller's thread only."""

    def __init__(
        self, holdings: Holdings, dispatcher: Dispatcher, intake: Intake, settings: Settings, observers: Observers
    ) -> None:
        self._holdings = holdings
        self._observers = observers
        self._observed = observers.hears("read")
        self._dispatcher = dispatcher
        self._intake = intake
        self._schema = settings.schema_name
        self._room = Room(settings.page, settings.window, settings.max_parked, settings.window_bytes)
        self.forget()

    def forget(self) -> None:
        """A new life of the server may have begun: nothing that is remembered of ids and transactions holds in it."""
        self._horizon = Horizon()
        self._looked_at = 0.0

    def claimed(self, floor: int) -> None:
        """A partition with this saved floor is read from here on."""
        self._horizon.claim(floor)

    def bound(self, partitions: list[Partition]) -> int:
        """So many records of these may be in memory."""
        return self._room.bound(partitions)

    def read(self, conn: Connection[Any]) -> bool:
        """Whether anything came."""
        with self._holdings.lock:
            readable = [partition for partition in self._holdings.partitions.values() if _readable(partition)]
        fresh = [partition for partition in readable if partition.cursor.fresh]
        together = [partition for partition in readable if not partition.cursor.fresh]
        if fresh:
            self._look(conn)
            self._poll(conn, fresh, self._rooms(fresh), alone=True)
        return (self._read_together(conn, together) if together else False) or bool(fresh)

    def _read_together(self, conn: Connection[Any], partitions: list[Partition]) -> bool:
        # Idle, this runs 25 times a second: the rooms of 256 partitions are only computed where they may matter.
        rooms = self._rooms(partitions) if any(partition.cursor.full for partition in partitions) else None
        more = rooms is not None and any(
            partition.cursor.full and room for partition, room in zip(partitions, rooms, strict=True)
        )
        if not (more and time.monotonic() - self._looked_at < LOOK_AGAIN):
            look = self._look(conn)
            lockstep = all(partition.cursor.lockstep for partition in partitions)
            if lockstep and not more and self._horizon.still(look.fence.drawn, look.ended):
                return False
        return self._poll(conn, partitions, rooms or self._rooms(partitions), alone=False)

    def _look(self, conn: Connection[Any]) -> Look:
        """An idle check. It is a fence too, so the last step to "settled" needs no other traffic."""
        look = records.look(conn, self._schema, self._horizon.listed())
        self._horizon.add(look.fence)
        self._looked_at = time.monotonic()
        return look

    def _poll(self, conn: Connection[Any], partitions: list[Partition], rooms: list[int], *, alone: bool) -> bool:
        horizon = self._horizon
        shared = None if alone else horizon.shared
        cursors = [partition.cursor for partition in partitions]
        asks = [cursor.ask(room, shared) for cursor, room in zip(cursors, rooms, strict=True)]
        asked_at = time.monotonic()
        text, floors, rows = records.poll(
            conn,
            self._schema,
            asks,
            shared,
            lo=min(cursor.start(ask.base.floor) for cursor, ask in zip(cursors, asks, strict=True)),
            hi=horizon.ceiling(max(ask.last_id for ask in asks)),
        )
        snapshot = Snapshot.parse(text)
        page = horizon.read(snapshot)
        if not alone:
            horizon.advance(snapshot, page)
        self._room.learn(rows)
        if self._observed and rows:
            starts = [cursor.start(floor) for cursor, floor in zip(cursors, floors, strict=True)]
            late_ids = max(ask.last_id - start for ask, start in zip(asks, starts, strict=True))
            self._observers.read(_Records(rows), time.monotonic() - asked_at, late_ids)
        self._intake.page(list(zip(partitions, asks, floors, strict=True)), page, rows, together=not alone)
        return bool(rows)

    def _rooms(self, partitions: list[Partition]) -> list[int]:
        """The room of each partition. A window that is full for long is freed of what stands in its way."""
        now = time.monotonic()
        with self._holdings.lock:
            rooms = self._room.of(partitions)
            for partition, room in zip(partitions, rooms, strict=True):
                if room == 0 and partition.running and self._room.full(partition):
                    self._dispatcher.unstick(partition, now)
            return rooms


class _Records(Sequence[tuple[int, int]]):
    """Partition and id of these rows. Most observers only count them."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return [row[:2] for row in self._rows[at]] if isinstance(at, slice) else self._rows[at][:2]


def _readable(partition: Partition) -> bool:
    """Not while it is draining, but for the rest of a cut page; not before its time has come."""
    if partition.lost or not partition.may_begin():
        return False
    return not partition.draining or partition.cursor.until is not None
