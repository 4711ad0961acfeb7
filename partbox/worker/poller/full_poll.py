"""Reads pages in full: late and new records of each partition, those with a backlog by a sweep.

The page of a backlog is handed over while the server makes the next one: a process waits for its server no longer than
it needs for all its other work. A page moves the cursors first, so the next can be asked for; then its events go into
their lanes. Nothing else uses the connection meanwhile.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
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
from partbox.events.record import PARTITION, PLACE, left_out
from partbox.protocol.cursor import CAP, Ask, Cursor
from partbox.protocol.horizon import Horizon, Page, Snapshot
from partbox.protocol.sweep import Sweep, brief, sweep
from partbox.worker.context import Context
from partbox.worker.engine.credits import Credit
from partbox.worker.engine.intake import Arrived, Brought
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.poll_groups import cursors_of
from partbox.worker.poller.payload_fetch import Payloads

T = TypeVar("T")


@contextmanager
def prefetch(call: Callable[[], T]) -> Iterator[Future[T]]:
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
    """A full poll with this credit: what it asks of each partition, and the bounds of all ids. `cursors` as in it."""

    credit: Credit
    cursors: list[Cursor]
    asks: list[Ask]
    shared: Page | None
    lo: int
    hi: int
    swept: Sweep | None
    alone: bool


class FullReader:
    """Makes full polls, on the poller's thread. `calm`: the last page was not one of many records."""

    def __init__(self, context: Context, payloads: Payloads) -> None:
        self._credits = context.engine.credits
        self._intake = context.engine.intake
        self._payloads = payloads
        self._schema = context.schema
        self._observers = context.observers
        self._is_heard = context.observers.hears("read")
        self.forget()

    def forget(self) -> None:
        """Forget what was read: the next poll follows no page."""
        self.calm = True
        self._dense = False  # the last page brought at least half of what partitions with a backlog had room for

    def ask(self, partitions: list[Partition]) -> Credit:
        """The credit of the next poll of these. Then what has stood in the way of it for too long is parked."""
        credit = self._credits.ask(partitions)
        self.unstick(credit.stuck)
        return credit

    def unstick(self, stuck: Collection[Partition]) -> None:
        """Park what has run too long in these partitions, without which more could be read."""
        if stuck:
            self._credits.unstick(stuck, time.monotonic())

    def request(self, horizon: Horizon, credit: Credit, *, alone: bool) -> Request:
        """The poll for this credit. `alone`: of partitions just claimed, which share no page yet."""
        shared = None if alone else horizon.shared
        cursors = cursors_of(credit.partitions)
        asks = [cursor.ask(room, shared) for cursor, room in zip(cursors, credit.rooms, strict=True)]
        hi = horizon.ceiling(max(ask.last_id for ask in asks))
        asks, swept = self._sweep(credit.partitions, cursors, asks, hi)
        lo = min(cursor.start(ask.base.floor) for cursor, ask in zip(cursors, asks, strict=True))
        return Request(credit, cursors, asks, shared, lo, hi, swept, alone)

    def read_on(
        self, conn: Connection[Any], horizon: Horizon, request: Request, goes_on: Callable[[], bool] = lambda: False
    ) -> bool:
        """Poll, and poll on while that brings much and nothing else is to be done; true if anything came."""
        (polled, asked_at), came = self._fetch(conn, request), False
        while True:
            brought, moved = self._move(conn, horizon, request, polled, asked_at)
            fits = brought.fits()
            came = (fits and bool(polled.rows)) or came
            following = self._following(horizon, request) if fits and goes_on() else None
            if following is None:
                self._intake.hand_over(moved, brought)
                return came
            with prefetch(partial(self._fetch, conn, following)) as next_one:
                self._intake.hand_over(moved, brought)
                del polled, brought, moved  # who runs an event frees its memory, while it is in the processor's cache
            request, (polled, asked_at) = following, next_one.result(0)

    def _following(self, horizon: Horizon, request: Request) -> Request | None:
        """The request that may follow at once, if it brings a backlog only, and there is room for half a page."""
        if request.swept is None or not self._dense:
            return None
        credit = self.ask(request.credit.partitions)
        if not credit.is_worth(0.0):
            return None
        following = self.request(horizon, credit, alone=False)
        return None if following.swept is None else following

    def _fetch(self, conn: Connection[Any], request: Request) -> tuple[Polled, float]:
        """Fetch the page; also when it was asked for (monotonic seconds). In any thread, one at a time."""
        credit, _, asks, shared, lo, hi, swept, _ = request
        asked_at = time.monotonic()
        try:
            polled = records.poll(conn, self._schema, asks, shared, lo=lo, hi=hi, cap=credit.cap, sweep=swept)
        except (QueryCanceled, HungError):  # cut, it may have been the page that was too much for the line
            self._credits.cancelled(credit)
            raise
        return polled, asked_at

    def _move(
        self, conn: Connection[Any], horizon: Horizon, request: Request, polled: Polled, asked_at: float
    ) -> tuple[Brought, list[Arrived]]:
        """Move all that was asked for to the page; returns it with its payloads, and what is to be handed over."""
        credit, cursors, asks, _, _, hi, swept, alone = request
        text, floors, rows, _, drawn, _ = polled
        self._credits.came(rows)
        self.calm = len(rows) <= CAP // 2
        self._dense = 2 * len(rows) >= credit.backlog
        brought = self._brought(conn, credit, polled)  # before anything moves: it may fail
        if swept is not None and swept.is_cut(len(rows), hi):
            brought = brought._replace(cut=swept.last_ids)
        snapshot = Snapshot.parse(text)
        page = horizon.page_of(snapshot, whole=hi >= drawn)
        if not alone:
            horizon.advance(snapshot, page)
        if self._is_heard:
            starts = [cursor.start(floor) for cursor, floor in zip(cursors, floors, strict=True)]
            late_ids = max(ask.last_id - start for ask, start in zip(asks, starts, strict=True))
            self.tell(rows, asked_at, late_ids)
        asked = list(zip(credit.partitions, asks, floors, strict=True))
        moved = self._intake.page(asked, page, brought, together=not alone)
        return brought, moved

    def _sweep(
        self, partitions: list[Partition], cursors: list[Cursor], asks: list[Ask], hi: int
    ) -> tuple[list[Ask], Sweep | None]:
        """Plan a sweep in place of a range for each: of all where little is new, else of those with a backlog.

        Not while their last page was thin. In the asks returned, whoever takes part may get more than its share, within
        its window.
        """
        if (swept := brief(asks, hi)) is not None or not self._dense:
            return asks, swept
        swept = sweep((ask for cursor, ask in zip(cursors, asks, strict=True) if cursor.full), hi)
        if swept is None:
            return asks, None
        widest = self._credits.widest(partitions)
        return [ask.with_room(swept.room(ask, most)) for ask, most in zip(asks, widest, strict=True)], swept

    def tell(self, rows: Sequence[Row], asked_at: float, late_ids: int) -> None:
        """Tell observers what a poll brought, when it was sent (monotonic seconds), and how many ids it searched for
        late records."""
        if self._is_heard and rows:
            self._observers.read(Records(rows), time.monotonic() - asked_at, late_ids)

    def _brought(self, conn: Connection[Any], credit: Credit, polled: Polled) -> Brought:
        """Fetch the payloads that the page left out, as far as there is room now; not those that are not needed."""
        rows, clock, survey = polled.rows, polled.clock, polled.survey
        large = left_out(rows) if survey.lacks else []
        if large:
            asked = {partition.number: partition for partition in credit.partitions}
            large = [row for row in large if self._intake.needs(asked[row[PARTITION]], row, clock)]
        if not large:
            return Brought(rows, {}, {}, credit.cap, clock, survey)
        greedy = self._credits.greedy(credit)
        left = self._credits.beside(len(rows), credit.bytes)
        return self._payloads.of_page(conn, rows, large, greedy, left, credit.cap, clock)
