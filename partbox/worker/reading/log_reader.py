"""Reads the log: one poll for all partitions in lockstep, one of their own for those just claimed."""

import time
from collections.abc import Sequence
from typing import Any

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db.blocking import Row
from partbox.db.deadline import HungError
from partbox.db.delivery import records
from partbox.db.delivery.records import Look
from partbox.events.record import PARTITION, PLACE
from partbox.observe import Observers
from partbox.rules.horizon import Horizon, Snapshot
from partbox.settings import Settings
from partbox.worker.delivering.dispatcher import Dispatcher
from partbox.worker.reading.intake import Intake
from partbox.worker.reading.payloads import Brought, Payloads
from partbox.worker.reading.read_budget import ReadBudget
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition
from partbox.worker.state.phase import Phase

LOOK_AGAIN = 0.05  # on a backlog the newest fence serves for so many seconds, and little room is left alone as long


class LogReader:
    """Reads what is new for the partitions of one process. The poller's thread only."""

    def __init__(
        self,
        holdings: Holdings,
        dispatcher: Dispatcher,
        intake: Intake,
        payloads: Payloads,
        settings: Settings,
        observers: Observers,
    ) -> None:
        self._holdings = holdings
        self._observers = observers
        self._observed = observers.hears("read")
        self._dispatcher = dispatcher
        self._intake = intake
        self._schema = settings.schema_name
        self._payloads = payloads
        self.room = ReadBudget(settings.page, settings.window, settings.max_parked, settings.window_bytes)
        self.waits_for_saves = False  # all partitions have a backlog, and there is enough of it in memory
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
        return self.room.bound(partitions)

    def read(self, conn: Connection[Any]) -> bool:
        """True if anything came."""
        self.waits_for_saves = False
        if self.room.starved:
            self._rooms([])
        with self._holdings.lock:
            readable = [partition for partition in self._holdings.partitions.values() if self._readable(partition)]
        fresh = [partition for partition in readable if partition.cursor.fresh]
        together = [partition for partition in readable if not partition.cursor.fresh]
        if fresh:
            self._look(conn)
            self._poll(conn, fresh, *self._rooms(fresh), alone=True)
        return (self._read_together(conn, together) if together else False) or bool(fresh)

    def _read_together(self, conn: Connection[Any], partitions: list[Partition]) -> bool:
        # Idle, this runs 25 times a second: the rooms of 256 partitions are only computed where they may matter.
        behind = sum(partition.cursor.full for partition in partitions)
        rooms, left = self._rooms(partitions) if behind else (None, 0)
        recent = time.monotonic() - self._looked_at < LOOK_AGAIN
        more = False
        if rooms is not None:
            with self._holdings.lock:
                more = self.room.is_worth(partitions, rooms, late=not recent)
        self.waits_for_saves = recent and not more and behind == len(partitions)
        if self.waits_for_saves:
            return False
        if not (more and recent):
            look = self._look(conn)
            lockstep = all(partition.cursor.lockstep for partition in partitions)
            if lockstep and not more and self._horizon.still(look.fence.drawn, look.ended):
                return False
        if rooms is None:
            rooms, left = self._rooms(partitions)
        return self._poll(conn, partitions, rooms, left, alone=False)

    def _look(self, conn: Connection[Any]) -> Look:
        """An idle check. It is a fence too, so the last step to "settled" needs no other traffic."""
        look = records.look(conn, self._schema, self._horizon.listed())
        self._horizon.add(look.fence)
        self._looked_at = time.monotonic()
        return look

    def _poll(
        self, conn: Connection[Any], partitions: list[Partition], rooms: list[int], left: int, *, alone: bool
    ) -> bool:
        horizon = self._horizon
        shared = None if alone else horizon.shared
        cursors = [partition.cursor for partition in partitions]
        asks = [cursor.ask(room, shared) for cursor, room in zip(cursors, rooms, strict=True)]
        cap = self.room.cap(len(partitions), left)
        asked_at = time.monotonic()
        try:
            text, floors, rows, clock = records.poll(
                conn,
                self._schema,
                asks,
                shared,
                lo=min(cursor.start(ask.base.floor) for cursor, ask in zip(cursors, asks, strict=True)),
                hi=horizon.ceiling(max(ask.last_id for ask in asks)),
                cap=cap,
            )
        except (QueryCanceled, HungError):  # cut, it may have been the page that was too much for the line
            self.room.cancelled(rooms)
            raise
        self.room.came()
        self.room.learn(rows)
        brought = self._brought(conn, partitions, rows, left, cap, clock)  # before anything moves: it may fail
        snapshot = Snapshot.parse(text)
        page = horizon.read(snapshot)
        if not alone:
            horizon.advance(snapshot, page)
        if self._observed and rows:
            starts = [cursor.start(floor) for cursor, floor in zip(cursors, floors, strict=True)]
            late_ids = max(ask.last_id - start for ask, start in zip(asks, starts, strict=True))
            self._observers.read(_Records(rows), time.monotonic() - asked_at, late_ids)
        self._intake.page(list(zip(partitions, asks, floors, strict=True)), page, brought, together=not alone)
        return bool(rows)

    def _brought(
        self, conn: Connection[Any], partitions: list[Partition], rows: list[Row], left: int, cap: int, clock: int
    ) -> Brought:
        """The page with the payloads that it left out, for which there is room now; not those that nobody will see."""
        left_out = records.left_out(rows)
        if left_out:
            unseen = {partition.number for partition in partitions if partition.draining}
            left_out = [row for row in left_out if row[PARTITION] not in unseen and self._intake.runs(row, clock)]
        if not left_out:
            return Brought(rows, {}, {}, cap, clock)
        with self._holdings.lock:
            # So none holds more than half of what the others leave.
            greedy = {partition.number for partition in partitions if partition.weight.bytes > max(left, 0)}
        return self._payloads.of_page(conn, rows, left_out, greedy, self.room.beside(len(rows), left), cap, clock)

    def _rooms(self, partitions: list[Partition]) -> tuple[list[int], int]:
        """The room of each partition, and the bytes that are left for all.

        A window that is full for long is freed of what stands in its way; so are the bytes.
        """
        now = time.monotonic()
        with self._holdings.lock:
            left = self.room.left(self._holdings.partitions.values())
            rooms = self.room.of(partitions, left)
            if self.room.starved:
                stuck = {*self._holdings.partitions.values()}
            else:
                stuck = {
                    each for each, room in zip(partitions, rooms, strict=True) if room == 0 and self.room.full(each)
                }
            if any(partition.running for partition in stuck):
                self._dispatcher.unstick(stuck, now)
            return rooms, left

    def _readable(self, partition: Partition) -> bool:
        """Not while it is draining, but for the rest of a cut page; not before its time has come.

        A cut page goes on when there are bytes for its next piece.
        """
        phase = partition.phase
        if phase is Phase.LOST or not partition.may_begin():
            return False
        if partition.cursor.until is None:
            return phase is not Phase.DRAINING
        return phase is Phase.DRAINING or not self.room.starved


class _Records(Sequence[tuple[int, int]]):
    """Partition and id of these rows. Most observers only count them."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return [row[PLACE] for row in self._rows[at]] if isinstance(at, slice) else self._rows[at][PLACE]
