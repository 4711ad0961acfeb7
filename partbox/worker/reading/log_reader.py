"""Reads the log: quickly for partitions that are caught up, in full for all while some are not, and by a poll of their
own for those just claimed.

The page of a backlog is handed over while the server makes the next one: a process waits for its server no longer than
it needs for all its other work. A page moves the cursors first, so the next can be asked for; then its events go into
their lanes. Nothing else uses the connection meanwhile.

While a few are behind, with a backlog that waits for handlers, the others go on quickly: in full all are read every
`IN_FULL` seconds if that brings much, and else every `LOOK_AGAIN`.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from psycopg import Connection
from psycopg.errors import QueryCanceled

from partbox.db.blocking import Row
from partbox.db.deadline import HungError
from partbox.db.delivery import looks, records
from partbox.db.delivery.looks import Look
from partbox.db.delivery.records import Polled
from partbox.events.record import PARTITION
from partbox.observe import Observers
from partbox.rules.bell import Seen
from partbox.rules.cursor import CAP, Ask
from partbox.rules.horizon import Horizon, Snapshot
from partbox.rules.page import Page
from partbox.rules.sweep import Sweep, sweep
from partbox.settings import Settings
from partbox.worker.delivering.dispatcher import Dispatcher
from partbox.worker.reading.company import Company
from partbox.worker.reading.intake import Arrived, Intake
from partbox.worker.reading.meanwhile import Meanwhile
from partbox.worker.reading.payloads import Brought, Payloads
from partbox.worker.reading.quick_reader import QuickReader
from partbox.worker.reading.read_budget import ReadBudget
from partbox.worker.reading.sightings import Sightings
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition
from partbox.worker.state.phase import Phase

LOOK_AGAIN = 0.05  # on a backlog the newest fence serves for so many seconds, and little room is left alone as long
IN_FULL = 0.01
FOLLOW = 1.0  # seconds after which partitions of which nothing comes are moved to the page where the others are


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
        self._sightings = Sightings(observers)
        self._dispatcher = dispatcher
        self._intake = intake
        self._schema = settings.schema_name
        self._payloads = payloads
        self.room = ReadBudget(settings.page, settings.window, settings.max_parked, settings.window_bytes)
        self._quick = QuickReader(holdings, intake, payloads, self.room, self._schema, observers)
        self.waits_for_saves = False  # all partitions have a backlog, and there is enough of it in memory
        self.seen: Seen | None = None  # by the last look, if all that may be read was read
        self.forget()

    def forget(self) -> None:
        """A new life of the server may have begun: nothing that is remembered of ids and transactions holds in it."""
        self._horizon = Horizon()
        self._looked_at = self._read_at = self._weighed_at = self._followed_at = 0.0
        self._calm = True  # the last page was not one of many records
        self._dense = False  # the last full one brought at least half of what partitions with a backlog had room for
        self._ticked: Look | None = None
        self._followed: Page | None = None
        self.rearrange()

    def claimed(self, floor: int) -> None:
        """A partition with this saved floor is read from here on."""
        self._horizon.claim(floor)
        self.rearrange()

    def bound(self, partitions: list[Partition]) -> int:
        """So many records of these may be in memory."""
        return self.room.bound(partitions)

    def rearrange(self) -> None:
        """Partitions may have come, gone or begun to drain, or their phase has changed."""
        self._company: Company | None = None

    def listed(self) -> list[int]:
        """The transactions whose end a look is to tell."""
        return self._horizon.listed()

    def looked(self, look: Look) -> None:
        """A tick has just looked: the next read need not."""
        self._horizon.add(look.fence)
        self._looked_at = time.monotonic()
        self._ticked = look

    def read(self, conn: Connection[Any], goes_on: Callable[[], bool] = lambda: False) -> bool:
        """True if anything came. After a page of a backlog the next follows at once, as long as it `goes_on`."""
        self.waits_for_saves = False
        self.seen = None
        look, self._ticked = self._ticked, None
        if self.room.starved:
            self._rooms([])
        company = self._company = self._company or self._gather()
        self._holdings.backlog = bool(company.behind) or self.room.starved
        if company.reads_quickly and self._calm and not self._is_turn_of_those_behind(company):
            came = self._read_quickly(conn, company, look)
            if came is not None:
                return came
        self.rearrange()
        self._read_at = time.monotonic()
        return self._read_in_full(conn, company, look, goes_on)

    def _read_quickly(self, conn: Connection[Any], company: Company, look: Look | None) -> bool | None:
        """True if anything came; None if all is to be read in full."""
        came = False
        if look is None or not self._horizon.still(look.fence.drawn, look.ended):
            page = self._quick.read(conn, self._horizon, company)
            if page is None:
                return None
            came, look = page
        self._let_follow(company)
        if not company.behind:
            self.seen = Seen(look.fence.drawn, self._is_settled(look), look.up)
        return came

    def _is_settled(self, look: Look) -> bool:
        """True if no transaction is open that has drawn one of the ids drawn by then."""
        return self._horizon.shared is not None and self._horizon.shared.floor == look.fence.drawn

    def _gather(self) -> Company:
        with self._holdings.lock:
            partitions = self._holdings.partitions.values()
            company = Company([partition for partition in partitions if self._readable(partition)])
        shared = self._horizon.shared
        if company.caught_up and shared is not None:
            for partition in company.behind:
                partition.cursor.stay(shared)
        return company

    def _is_turn_of_those_behind(self, company: Company) -> bool:
        """True if all are to be read in full, for those that are behind.

        At once, unless each of these has a backlog, which the window has no room for perhaps.
        """
        if not company.behind or not all(each.cursor.full and each.cursor.until is None for each in company.behind):
            return bool(company.behind)
        now = time.monotonic()
        if now - self._weighed_at < IN_FULL:
            return False
        self._weighed_at = now
        rooms, _ = self._rooms(company.together)
        with self._holdings.lock:
            return now - self._read_at > LOOK_AGAIN or self.room.is_worth(company.together, rooms, late=False)

    def _let_follow(self, company: Company) -> None:
        """A cursor that only moved with the others is saved now and then; and what is saved holds purge back."""
        now, shared = time.monotonic(), self._horizon.shared
        if shared is not None and shared is not self._followed and now - self._followed_at > FOLLOW:
            self._followed, self._followed_at = shared, now
            self._intake.follow(company.caught_up.values(), shared)

    def _read_in_full(
        self, conn: Connection[Any], company: Company, look: Look | None, goes_on: Callable[[], bool]
    ) -> bool:
        fresh, together = company.fresh, company.together
        if fresh:
            look = self._look(conn)
            self._read_on(conn, fresh, self._request(fresh, *self._rooms(fresh), alone=True), lambda: False)
        return (self._read_together(conn, together, look, goes_on) if together else False) or bool(fresh)

    def _read_together(
        self, conn: Connection[Any], partitions: list[Partition], look: Look | None, goes_on: Callable[[], bool]
    ) -> bool:
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
            look = look or self._look(conn)
            lockstep = all(partition.cursor.lockstep for partition in partitions)
            if lockstep and not more and self._horizon.still(look.fence.drawn, look.ended):
                return False
        if rooms is None:
            rooms, left = self._rooms(partitions)
        return self._read_on(conn, partitions, self._request(partitions, rooms, left, alone=False), goes_on)

    def _look(self, conn: Connection[Any]) -> Look:
        """An idle check. It is a fence too, so the last step to "settled" needs no other traffic."""
        look = looks.look(conn, self._schema, self._horizon.listed())
        self._horizon.add(look.fence)
        self._looked_at = time.monotonic()
        return look

    def _read_on(
        self,
        conn: Connection[Any],
        partitions: list[Partition],
        request: Request,
        goes_on: Callable[[], bool],
    ) -> bool:
        """Poll, and poll on while that brings much and nothing else is to be done; true if anything came."""
        (polled, asked_at), came = self._fetch(conn, request), False
        while True:
            came = bool(polled.rows) or came
            brought, moved = self._move(conn, request, polled, asked_at)
            following = self._following(partitions, request) if goes_on() else None
            if following is None:
                self._intake.hand_over(moved, brought)
                return came
            with Meanwhile(partial(self._fetch, conn, following)) as next_one:
                self._intake.hand_over(moved, brought)
            request, (polled, asked_at) = following, next_one.result()

    def _following(self, partitions: list[Partition], request: Request) -> Request | None:
        """The request that may follow at once: all that it brings is a backlog, and there is room for half a page."""
        if request.swept is None or not self._dense:
            return None
        rooms, left = self._rooms(partitions)
        with self._holdings.lock:
            if not self.room.is_worth(partitions, rooms, late=False):
                return None
        following = self._request(partitions, rooms, left, alone=False)
        return None if following.swept is None else following

    def _request(self, partitions: list[Partition], rooms: list[int], left: int, *, alone: bool) -> Request:
        shared = None if alone else self._horizon.shared
        cursors = [partition.cursor for partition in partitions]
        asks = [cursor.ask(room, shared) for cursor, room in zip(cursors, rooms, strict=True)]
        cap = self.room.cap(len(partitions), left)
        hi = self._horizon.ceiling(max(ask.last_id for ask in asks))
        asks, swept = self._sweep(partitions, asks, hi)
        lo = min(cursor.start(ask.base.floor) for cursor, ask in zip(cursors, asks, strict=True))
        return Request(partitions, rooms, left, asks, shared, lo, hi, cap, swept, alone)

    def _fetch(self, conn: Connection[Any], request: Request) -> tuple[Polled, float]:
        """The page, and when it was asked for (monotonic seconds). In any thread, one at a time."""
        _, rooms, _, asks, shared, lo, hi, cap, swept, _ = request
        asked_at = time.monotonic()
        try:
            polled = records.poll(conn, self._schema, asks, shared, lo=lo, hi=hi, cap=cap, sweep=swept)
        except (QueryCanceled, HungError):  # cut, it may have been the page that was too much for the line
            self.room.cancelled(rooms)
            raise
        return polled, asked_at

    def _move(
        self, conn: Connection[Any], request: Request, polled: Polled, asked_at: float
    ) -> tuple[Brought, list[Arrived]]:
        """Move all that was asked for to the page; what is to be handed over of it."""
        partitions, rooms, left, asks, _, _, hi, cap, swept, alone = request
        text, floors, rows, clock, drawn = polled
        self.room.came()
        self.room.learn(rows)
        self._calm = len(rows) <= CAP // 2
        wanted = sum(room for room, each in zip(rooms, partitions, strict=True) if each.cursor.full)
        self._dense = 2 * len(rows) >= wanted
        brought = self._brought(conn, partitions, rows, left, cap, clock)  # before anything moves: it may fail
        if swept is not None and swept.is_cut(len(rows), hi):
            brought = brought._replace(cut=swept.last_ids)
        snapshot = Snapshot.parse(text)
        page = self._horizon.read(snapshot, whole=hi >= drawn)
        if not alone:
            self._horizon.advance(snapshot, page)
        self._tell(partitions, asks, floors, rows, asked_at)
        moved = self._intake.page(list(zip(partitions, asks, floors, strict=True)), page, brought, together=not alone)
        return brought, moved

    def _sweep(self, partitions: list[Partition], asks: list[Ask], hi: int) -> tuple[list[Ask], Sweep | None]:
        """The sweep of those that have a backlog, unless they had little of one in the range of the last page; and the
        asks, in which who takes part may get more than its share, within its window."""
        if not self._dense:
            return asks, None
        swept = sweep((ask for partition, ask in zip(partitions, asks, strict=True) if partition.cursor.full), hi)
        if swept is None:
            return asks, None
        with self._holdings.lock:
            return [
                ask._replace(room=swept.room(ask, self.room.widest(partition)))
                for partition, ask in zip(partitions, asks, strict=True)
            ], swept

    def _tell(
        self, partitions: list[Partition], asks: list[Ask], floors: list[int], rows: list[Row], asked_at: float
    ) -> None:
        if self._sightings.wanted and rows:
            starts = [partition.cursor.start(floor) for partition, floor in zip(partitions, floors, strict=True)]
            late_ids = max(ask.last_id - start for ask, start in zip(asks, starts, strict=True))
            self._sightings.tell(rows, asked_at, late_ids)

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
