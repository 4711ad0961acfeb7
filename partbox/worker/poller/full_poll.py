"""Full polls: read late and new records of any set of partitions, with a sweep for a backlog. The next page of a dense
backlog is fetched while the current page is handed over."""

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
from partbox.db.delivery.records import PolledPage
from partbox.events.record import LOG_POSITION, PARTITION, list_incomplete
from partbox.protocol.cursor import MAX_LATE, Cursor, ReadRequest
from partbox.protocol.horizon import Horizon, Page, Snapshot
from partbox.protocol.sweep import Sweep, plan_brief_sweep, plan_sweep
from partbox.worker.context import Context
from partbox.worker.engine.credits import Credit
from partbox.worker.engine.intake import FetchedPage, MovedPage
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.poll_groups import cursors_of
from partbox.worker.poller.payload_fetch import PayloadFetcher

T = TypeVar("T")


@contextmanager
def prefetch(call: Callable[[], T]) -> Iterator[Future[T]]:
    """Run `call` in a new thread during the `with` block, and yield a future of its result."""
    # Leaving the block waits for the call to end. A thread per call costs less than 0.1 ms and leaves nothing to stop.
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


class RecordIds(Sequence[tuple[int, int]]):
    """A lazy sequence of the (partition, id) pairs of the rows that a poll has read. Each pair is built on access,
    because most observers only take the length."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: Any) -> Any:
        return [row[LOG_POSITION] for row in self._rows[at]] if isinstance(at, slice) else self._rows[at][LOG_POSITION]


class PollRequest(NamedTuple):
    """The parameters of one query for new event records of several partitions."""

    # The records have ids above `lo` and up to `hi`. `cursors` (the positions up to which events were read) and
    # `read_requests` are in the order of `credit.partitions`. `is_alone`: the partitions were just claimed by this
    # process.

    credit: Credit
    cursors: list[Cursor]
    read_requests: list[ReadRequest]
    shared_page: Page | None
    lo: int
    hi: int
    sweep_plan: Sweep | None
    is_alone: bool


class FullReader:
    """A reader that fetches the event records of any partitions from the database, page by page.

    `is_calm` is True while the last page was small enough for a quick poll, which is one cheap query for all partitions
    that are up to date."""

    def __init__(self, context: Context, payloads: PayloadFetcher) -> None:
        self._credits = context.engine.credits
        self._intake = context.engine.intake
        self._payloads = payloads
        self._schema = context.schema
        self._observers = context.observers
        self._is_heard = context.observers.has_hook("read")
        self.forget_page_size()

    def forget_page_size(self) -> None:
        """Forget how large the last page was."""
        # The next poll does not continue from that page.
        self.is_calm = True
        self._is_dense = False

    def take_credit(self, partitions: list[Partition]) -> Credit:
        """Return how many records each of the partitions may receive in the next poll."""
        # Events that have blocked a partition for too long are parked, which means set aside in rows of their own.
        credit = self._credits.grant_credit(partitions)
        self.evict_slow(credit.blocked_by_slow)
        return credit

    def evict_slow(self, blocked_by_slow: Collection[Partition]) -> None:
        """Set aside events whose handlers have run for too long, in the partitions `blocked_by_slow`."""
        # Each such event gets a row of its own (it is parked), and the partition can go on.
        if blocked_by_slow:
            self._credits.evict_slow(blocked_by_slow, time.monotonic())

    def build_request(self, horizon: Horizon, credit: Credit, *, alone: bool) -> PollRequest:
        # `alone`: the partitions were just claimed by this process, and share no page with its other partitions yet.
        shared = None if alone else horizon.shared_page
        cursors = cursors_of(credit.partitions)
        asks = [cursor.build_request(room, shared) for cursor, room in zip(cursors, credit.rooms, strict=True)]
        hi = horizon.find_ceiling(max(ask.last_id for ask in asks))
        asks, sweep_plan = self._plan_sweep(credit.partitions, cursors, asks, hi)
        lo = min(cursor.find_search_start(ask.base_page.floor) for cursor, ask in zip(cursors, asks, strict=True))
        return PollRequest(credit, cursors, asks, shared, lo, hi, sweep_plan, alone)

    def read_pages(
        self,
        conn: Connection[Any],
        horizon: Horizon,
        request: PollRequest,
        may_continue: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Read pages of records until a page brings little or `may_continue` returns False. Return True if any came."""
        # Each page moves the cursors before its events go into their lanes, so that the next page can be requested
        # early. Nothing else uses the connection while that page is fetched.
        # The next page is fetched while the current page is handed over. Only the calling thread moves cursors.
        (polled, asked_at), came = self._fetch_page(conn, request), False
        while True:
            fetched, moved = self._move_cursors(conn, horizon, request, polled, asked_at)
            fits = fetched.has_usable_rows()
            came = (fits and bool(polled.rows)) or came
            next_request = self._build_next_request(horizon, request) if fits and may_continue() else None
            if next_request is None:
                self._intake.hand_over(moved, fetched)
                return came
            with prefetch(partial(self._fetch_page, conn, next_request)) as next_page:
                self._intake.hand_over(moved, fetched)
                # Drop these references, so that the runner of an event frees the event's memory while the processor has
                # it cached.
                del polled, fetched, moved
            request, (polled, asked_at) = next_request, next_page.result(0)

    def _build_next_request(self, horizon: Horizon, request: PollRequest) -> PollRequest | None:
        # None means that reading stops.
        # Reading goes on only if a dense backlog remains and memory has room for half a page.
        if request.sweep_plan is None or not self._is_dense:
            return None
        credit = self.take_credit(request.credit.partitions)
        if not credit.is_poll_worthwhile(0.0):
            return None
        next_request = self.build_request(horizon, credit, alone=False)
        return None if next_request.sweep_plan is None else next_request

    def _fetch_page(self, conn: Connection[Any], request: PollRequest) -> tuple[PolledPage, float]:
        # The page is returned with the time when the query was sent (monotonic seconds).
        # Any thread may run this, one at a time. A timeout halves the next credit, because the page may have been too
        # large for the line.
        credit, _, asks, shared, lo, hi, sweep_plan, _ = request
        asked_at = time.monotonic()
        try:
            polled = records.poll_page(
                conn,
                self._schema,
                asks,
                shared,
                lo=lo,
                hi=hi,
                limits=credit.late_limits,
                sweep=sweep_plan,
                types=self._intake.wanted_types,
            )
        except (QueryCanceled, HungError):
            self._credits.note_timeout(credit)
            raise
        return polled, asked_at

    def _move_cursors(
        self, conn: Connection[Any], horizon: Horizon, request: PollRequest, polled: PolledPage, asked_at: float
    ) -> tuple[FetchedPage, list[MovedPage]]:
        # Returned are the page with its payloads, and the parts to hand over to each partition.
        credit, cursors, asks, _, _, hi, sweep_plan, alone = request
        text, floors, rows, _, drawn, _ = polled
        self._credits.note_poll_in_time(rows)
        self.is_calm = len(rows) <= MAX_LATE // 2
        # The page is dense if it brought at least half of the room of the partitions with a backlog.
        self._is_dense = 2 * len(rows) >= credit.backlog_room
        # Complete the page before anything moves, because this may fail.
        fetched = self._complete_page(conn, credit, polled)
        # A sweep that was cut short leaves the partitions in it with room to spare although there may be more to read.
        if sweep_plan is not None and sweep_plan.is_cut(len(rows), hi):
            fetched = fetched._replace(cut_partitions=sweep_plan.last_ids)
        snapshot = Snapshot.parse(text)
        page = horizon.build_page(snapshot, is_complete=hi >= drawn)
        if not alone:
            horizon.share_page(snapshot, page)
        if self._is_heard:
            starts = [cursor.find_search_start(floor) for cursor, floor in zip(cursors, floors, strict=True)]
            late_ids = max(ask.last_id - start for ask, start in zip(asks, starts, strict=True))
            self.notify_read(rows, asked_at, late_ids)
        targets = list(zip(credit.partitions, asks, floors, strict=True))
        moved = self._intake.advance_to_page(targets, page, fetched, together=not alone)
        return fetched, moved

    def _plan_sweep(
        self, partitions: list[Partition], cursors: list[Cursor], asks: list[ReadRequest], hi: int
    ) -> tuple[list[ReadRequest], Sweep | None]:
        # A sweep reads one range of ids instead of searching for each partition.
        # Returned are the asks, and the range scan (sweep) or None. A sweep serves all partitions if little is new.
        # Otherwise it serves partitions with a backlog, but none after a thin page. A swept partition may get more than
        # its share, within its window.
        if (sweep_plan := plan_brief_sweep(asks, hi)) is not None or not self._is_dense:
            return asks, sweep_plan
        sweep_plan = plan_sweep((ask for cursor, ask in zip(cursors, asks, strict=True) if cursor.may_have_backlog), hi)
        if sweep_plan is None:
            return asks, None
        widest = self._credits.find_unshared_rooms(partitions)
        return [
            ask.with_room(sweep_plan.compute_room(ask, most)) for ask, most in zip(asks, widest, strict=True)
        ], sweep_plan

    def notify_read(self, rows: Sequence[Row], asked_at: float, late_ids: int) -> None:
        """Report the rows of a page to observers, with the seconds since `asked_at`."""
        # An empty page is not reported. `late_ids` is the number of ids that were searched for records of transactions
        # that committed late.
        if self._is_heard and rows:
            self._observers.read(RecordIds(rows), time.monotonic() - asked_at, late_ids)

    def _complete_page(self, conn: Connection[Any], credit: Credit, polled: PolledPage) -> FetchedPage:
        rows, clock, stats = polled.rows, polled.clock, polled.stats
        large = list_incomplete(rows) if stats.has_incomplete else []
        if large:
            targets = {partition.number: partition for partition in credit.partitions}
            large = [row for row in large if self._intake.needs_parts(targets[row[PARTITION]], row, clock)]
        if not large:
            return FetchedPage(rows, {}, {}, credit.late_limits, clock, stats)
        greedy = self._credits.find_greedy(credit)
        left = self._credits.bytes_for_payloads(len(rows), credit.free_bytes)
        return self._payloads.complete_page(conn, rows, large, greedy, left, credit.late_limits, clock)
