"""Reads pages in full: late and new records of each partition, those with a backlog by a sweep.

The page of a backlog is handed over while the server makes the next one: a process waits for its server no longer than
it needs for all its other work. A page moves the cursors first, so the next can be asked for; then its events go into
their lanes. Nothing else uses the connection meanwhile.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db.blocking import Row
from partbox.db.deadline import HungError
from partbox.db.delivery import records
from partbox.db.delivery.records import Polled
from partbox.events.record import PARTITION, PLACE, delayed, lacks_names, left_out
from partbox.protocol.cursor import CAP, Ask
from partbox.protocol.horizon import Horizon, Page, Snapshot
from partbox.protocol.sweep import Sweep, brief, sweep
from partbox.worker.context import Context
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.read_budget import ReadBudget
from partbox.worker.poller.intake import Arrived, Intake
from partbox.worker.poller.payload_fetch import Brought, Payloads
from partbox.worker.runners.dispatcher import Dispatcher

T = TypeVar("T")


@contextmanager
def meanwhile(call: Callable[[], T]) -> Iterator[Future[T]]:
    """Run `call` in a thread of its own while a `with` block runs, which ends no earlier than the call.

    A thread for each call costs less than 0.1 ms, and leaves nothing behind that has to be stopped.
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="partbox-ahead", daemon=True)
    thread.start()
    try:
        yield future
    finally:
        thread.join()


class Records(Sequence[tuple[int, int]]):
    """Partition and id of these rows, for observers, most of which only count them."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return [row[PLACE] for row in self._rows[at]] if isinstance(at, slice) else self._rows[at][PLACE]


class Request(NamedTuple):
    """A full poll of these partitions, with so much room for each and so many bytes for all."""

    partitions: list[Partition]
    rooms: list[int]
    left: int
    asks: list[Ask]
    shared: Page | None
    lo: int
    hi: int
    cap: int
    swept: Sweep | None
    alone: bool


class FullReader:
    """Of one process; the poller's thread only. `calm`: the last page was not one of many records."""

    def __init__(
        self, context: Context, dispatcher: Dispatcher, intake: Intake, payloads: Payloads, room: ReadBudget
    ) -> None:
        self._engine = context.engine
        self._dispatcher = dispatcher
        self._intake = intake
        self._payloads = payloads
        self._room = room
        self._schema = context.schema
        self._observers = context.observers
        self._is_heard = context.observers.hears("read")
        self.forget()

    def forget(self) -> None:
        """Nothing was read yet."""
        self.calm = True
        self._dense = False  # the last page brought at least half of what partitions with a backlog had room for

    def rooms(self, partitions: list[Partition]) -> tuple[list[int], int]:
        """The room of each partition, and the bytes that are left for all.

        A window that is full for long is freed of what stands in its way; so are the bytes.
        """
        now = time.monotonic()
        with self._engine.lock:  # runners and saves free room while it is counted
            left = self._room.left(self._engine.partitions.values())
            rooms = self._room.of(partitions, left)
            if self._room.starved:
                stuck = {*self._engine.partitions.values()}
            else:
                stuck = {
                    each for each, room in zip(partitions, rooms, strict=True) if room == 0 and self._room.full(each)
                }
            if any(partition.running for partition in stuck):
                self._dispatcher.unstick(stuck, now)
            return rooms, left

    def request(
        self, horizon: Horizon, partitions: list[Partition], rooms: list[int], left: int, *, alone: bool
    ) -> Request:
        """A poll of these, with so much room for each and so many bytes for all. `alone`: of those just claimed."""
        shared = None if alone else horizon.shared
        cursors = [partition.cursor for partition in partitions]
        asks = [cursor.ask(room, shared) for cursor, room in zip(cursors, rooms, strict=True)]
        cap = self._room.cap(len(partitions), left)
        hi = horizon.ceiling(max(ask.last_id for ask in asks))
        asks, swept = self._sweep(partitions, asks, hi)
        lo = min(cursor.start(ask.base.floor) for cursor, ask in zip(cursors, asks, strict=True))
        return Request(partitions, rooms, left, asks, shared, lo, hi, cap, swept, alone)

    def read_on(
        self, conn: Connection[Any], horizon: Horizon, request: Request, goes_on: Callable[[], bool] = lambda: False
    ) -> bool:
        """Poll, and poll on while that brings much and nothing else is to be done; true if anything came."""
        (polled, asked_at), came = self._fetch(conn, request), False
        while True:
            came = bool(polled.rows) or came
            brought, moved = self._move(conn, horizon, request, polled, asked_at)
            following = self._following(horizon, request) if goes_on() else None
            if following is None:
                self._intake.hand_over(moved, brought)
                return came
            with meanwhile(partial(self._fetch, conn, following)) as next_one:
                self._intake.hand_over(moved, brought)
            request, (polled, asked_at) = following, next_one.result(0)

    def _following(self, horizon: Horizon, request: Request) -> Request | None:
        """The request that may follow at once: all that it brings is a backlog, and there is room for half a page."""
        if request.swept is None or not self._dense:
            return None
        partitions = request.partitions
        rooms, left = self.rooms(partitions)
        with self._engine.lock:  # as in `rooms`
            if not self._room.is_worth(partitions, rooms, late=False):
                return None
        following = self.request(horizon, partitions, rooms, left, alone=False)
        return None if following.swept is None else following

    def _fetch(self, conn: Connection[Any], request: Request) -> tuple[Polled, float]:
        """The page, and when it was asked for (monotonic seconds). In any thread, one at a time."""
        _, rooms, _, asks, shared, lo, hi, cap, swept, _ = request
        asked_at = time.monotonic()
        try:
            polled = records.poll(conn, self._schema, asks, shared, lo=lo, hi=hi, cap=cap, sweep=swept)
        except (QueryCanceled, HungError):  # cut, it may have been the page that was too much for the line
            self._room.cancelled(rooms)
            raise
        return polled, asked_at

    def _move(
        self, conn: Connection[Any], horizon: Horizon, request: Request, polled: Polled, asked_at: float
    ) -> tuple[Brought, list[Arrived]]:
        """Move all that was asked for to the page; what is to be handed over of it."""
        partitions, rooms, left, asks, _, _, hi, cap, swept, alone = request
        text, floors, rows, clock, drawn = polled
        self._room.came()
        self._room.learn(rows)
        self.calm = len(rows) <= CAP // 2
        wanted = sum(room for room, each in zip(rooms, partitions, strict=True) if each.cursor.full)
        self._dense = 2 * len(rows) >= wanted
        brought = self._brought(conn, partitions, rows, left, cap, clock)  # before anything moves: it may fail
        if swept is not None and swept.is_cut(len(rows), hi):
            brought = brought._replace(cut=swept.last_ids)
        snapshot = Snapshot.parse(text)
        page = horizon.page_of(snapshot, whole=hi >= drawn)
        if not alone:
            horizon.advance(snapshot, page)
        if self._is_heard:
            starts = [partition.cursor.start(floor) for partition, floor in zip(partitions, floors, strict=True)]
            late_ids = max(ask.last_id - start for ask, start in zip(asks, starts, strict=True))
            self.tell(rows, asked_at, late_ids)
        moved = self._intake.page(list(zip(partitions, asks, floors, strict=True)), page, brought, together=not alone)
        return brought, moved

    def _sweep(self, partitions: list[Partition], asks: list[Ask], hi: int) -> tuple[list[Ask], Sweep | None]:
        """The sweep of all where little is new, or of those that have a backlog, unless they had little of one in the
        range of the last page; and the asks, in which who takes part may get more than its share, within its window."""
        if (swept := brief(asks, hi)) is not None or not self._dense:
            return asks, swept
        swept = sweep((ask for partition, ask in zip(partitions, asks, strict=True) if partition.cursor.full), hi)
        if swept is None:
            return asks, None
        with self._engine.lock:  # as in `rooms`
            return [
                ask._replace(room=swept.room(ask, self._room.widest(partition)))
                for partition, ask in zip(partitions, asks, strict=True)
            ], swept

    def tell(self, rows: Sequence[Row], asked_at: float, late_ids: int) -> None:
        """Tell observers what a poll brought that was sent then (monotonic seconds); it searched so many ids for late
        records."""
        if self._is_heard and rows:
            self._observers.read(Records(rows), time.monotonic() - asked_at, late_ids)

    def _brought(
        self, conn: Connection[Any], partitions: list[Partition], rows: list[Row], left: int, cap: int, clock: int
    ) -> Brought:
        """The page with the payloads that it left out, for which there is room now; not those that nobody will see."""
        large = left_out(rows)
        if large:
            unseen = {partition.number for partition in partitions if partition.draining}
            large = [
                row
                for row in large
                if (row[PARTITION] not in unseen or lacks_names(row)) and self._intake.needs(row, clock)
            ]
        if not large:
            return Brought(rows, {}, {}, cap, clock, delayed(rows))
        with self._engine.lock:  # handlers that end let go bytes
            # So none holds more than half of what the others leave.
            greedy = {partition.number for partition in partitions if partition.weight.bytes > max(left, 0)}
        return self._payloads.of_page(conn, rows, large, greedy, self._room.beside(len(rows), left), cap, clock)
