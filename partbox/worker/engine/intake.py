"""From a page to lanes: each record that a poll brings becomes an event that waits for its handler, or a parked row.

First a page *moves* the cursors of the partitions that were asked for, then its records are *handed over* to their
lanes. The reader may ask for the next page in between; that one moves nothing before all of this one is handed over.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple, TypeVar

from partbox.events import ClaimContext, DeliveredEvent
from partbox.events.record import (
    AGGREGATE,
    AGGREGATE_ID,
    AVAILABLE_AT,
    EVENT_TYPE,
    ID,
    PARTITION,
    PageStats,
    PartitionRows,
    Row,
    lacks_names,
    microseconds,
)
from partbox.protocol.cursor import PagePart, ReadRequest
from partbox.protocol.horizon import Page
from partbox.worker.engine.key import Key, key_of
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.saves import READY
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState

LOCK_PORTION = 16
"""Partitions for which the lock is taken once: who takes it for each of 256 meets the runner's wish for it as often."""

_id, _available_at = itemgetter(ID), itemgetter(AVAILABLE_AT)

T = TypeVar("T")


class FetchedPage(NamedTuple):
    """A page with its payloads: per partition the sizes of its large records, and the first id that is left out.

    Of a partition's late records more than `cap` are not taken. `clock`: the server's at the poll. `cut`: partitions of
    which there may be more, though there was room for it. `stats`: what is known of the rows.
    """

    rows: list[Row]
    large: dict[int, dict[int, int]]
    ends: dict[int, int]
    cap: int
    clock: int
    stats: PageStats
    cut: Container[int] = ()

    def fits(self) -> bool:
        """True if anything of it can be taken: it does not begin with what is left out, of each partition."""
        return not self.ends or any(row[ID] < self.ends.get(row[PARTITION], row[ID] + 1) for row in self.rows)


class MovedPage(NamedTuple):
    """A partition that a page has moved, and its rows, which are not handed over yet."""

    partition: Partition
    reading: PagePart
    rows: list[Row]


class Intake:
    """Takes pages from the poller's thread. `wanted_types`: the event types that the subscription takes; None: all of
    them.

    `transactional`: some handlers are, so a late record that came is parked before anything after it runs.
    """

    def __init__(
        self, state: EngineState, scheduler: LaneScheduler, claim: ClaimContext, *, transactional: bool
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._scheduler = scheduler
        self._claim_parts = claim[1:]  # by all partitions
        self._transactional = transactional
        self._lengthened: list[SharedLane] = []  # lines that have got longer in this section
        self.wanted_types: frozenset[str] | None = None

    def page(
        self, asked: Sequence[tuple[Partition, ReadRequest, int]], page: Page, fetched: FetchedPage, *, together: bool
    ) -> list[MovedPage]:
        """Move all partitions that were asked for, each with the floor of its late search, to `page`.

        Returns what `hand_over` is to be given next. `together`: partitions in lockstep share the page. What a
        partition that drains has read, and a piece of a cut page, is handed over at once.
        """
        by_partition, moved = fetched.stats.by_partition, list[MovedPage]()
        for some in _split_portions(asked):
            # Cursor and progress move as one: a save between them would pass what no lane has.
            with self._lock:
                for partition, ask, floor in some:
                    if not partition.lost:
                        share = by_partition.get(partition.number) or PartitionRows([], [])
                        one = self._move(partition, ask, page, floor, share, fetched, together=together)
                        # It may be released at any time, and a release parks only what is in a lane (DESIGN 5).
                        if one.reading.is_piece or partition.draining:
                            self._hand_over_moved(one, fetched)
                        else:
                            moved.append(one)
                self._wake_lengthened()
        return moved

    def hand_over(self, moved: Sequence[MovedPage], fetched: FetchedPage) -> None:
        """Hand over what a page has moved, before the next one moves anything."""
        for some in _split_portions(moved):
            with self._lock:  # rows become events or parked rows, never neither
                for each in some:
                    if not each.partition.lost:
                        self._hand_over_moved(each, fetched)
                self._wake_lengthened()

    def take_quick_page(self, caught_up: Mapping[int, Partition], page: Page, fetched: FetchedPage) -> None:
        """Move and hand over a quick page to those caught up of which it brought something; others need no touch."""
        for number, share in fetched.stats.by_partition.items():
            partition = caught_up[number]
            with self._lock:  # as in `page`
                if not partition.lost:
                    self._move_caught_up(partition, page, share, fetched)
                self._wake_lengthened()

    def move_caught_up(self, partitions: Iterable[Partition], page: Page) -> None:
        """Move these, which are caught up, to `page`, which has brought nothing of theirs: so a save can pass it."""
        for partition in partitions:
            with self._lock:  # as in `page`
                if not partition.lost:
                    self._move_caught_up(partition, page, PartitionRows([], []), None)

    def needs_parts(self, partition: Partition, row: Row, clock: int) -> bool:
        """True if a record's omitted parts are needed now.

        Its names always are, for it may be parked under them; its payload only if it may run: if its time has come by
        this clock, the subscription wants its type, and it is not to be parked for its partition drains, or as late.
        """
        if lacks_names(row):
            return True
        if partition.draining or (self._transactional and row[ID] <= partition.cursor.last_id):
            return False
        return not _is_scheduled(row[AVAILABLE_AT], clock) and (
            self.wanted_types is None or row[EVENT_TYPE] in self.wanted_types
        )

    def _move(
        self,
        partition: Partition,
        ask: ReadRequest,
        page: Page,
        floor: int,
        share: PartitionRows,
        fetched: FetchedPage,
        *,
        together: bool,
    ) -> MovedPage:
        rows, ids = _sort_share(share)
        late = bisect_right(ids, ask.last_id)
        end = fetched.ends.get(partition.number)
        # What follows a payload that was left out counts as not asked for. Below 0: a late record's was. Late records
        # are kept whatever the room (A4).
        whole = (len(ids) if end is None else bisect_left(ids, end)) - late
        kept = late + min(ask.room, whole)
        new, rows = ids[late:kept], rows[:kept]
        cap = fetched.cap if end is None else min(kept, fetched.cap)
        if end is not None or partition.number in fetched.cut:
            ask = ask.with_room(len(new))  # so the cursor says that there is more
        if end is not None:
            partition.max_records = 2 * max(0, whole) + 1
        elif partition.max_records is not None and (new or not partition.payload_bytes.total):
            partition.raise_max_records()
        reading = partition.cursor.take(ask, page, floor, ids[:late], new, together=together, cap=cap)
        if reading.is_piece:
            partition.progress.take_piece(reading.page, reading.late, reading.last)
            rows = rows[: len(reading.late)]
        else:
            partition.progress.take_page(reading.page, reading.late, reading.new, reading.raised_to)
        return MovedPage(partition, reading, rows)

    def _hand_over_moved(self, moved: MovedPage, fetched: FetchedPage) -> None:
        partition, reading, rows = moved
        had_ahead = bool(partition.parked.ahead)
        if rows:
            self._hand_over(partition, rows, len(reading.late), fetched)
        if reading.is_piece:
            # No cursor inside a cut page is saved (DESIGN 4), so only the last piece makes what was done savable.
            if partition.draining or (reading.last and partition.progress.count_finished()):
                self._state.mark_dirty(partition)
            return
        if not partition.cursor.full:  # the dead process cannot have had what comes after an uncut page (DESIGN 7)
            partition.suspects.left = 0
        if had_ahead:
            self._forget_ahead(partition)

    def _move_caught_up(
        self, partition: Partition, page: Page, share: PartitionRows, fetched: FetchedPage | None
    ) -> None:
        rows, ids = share
        reading = partition.cursor.take_quick(page, ids)
        partition.progress.take_page(reading.page, reading.late, reading.new, reading.raised_to)
        if partition.max_records is not None:
            partition.raise_max_records()
        if fetched is not None:
            self._hand_over(partition, rows, len(reading.late), fetched)

    def _hand_over(self, partition: Partition, rows: list[Row], late: int, fetched: FetchedPage) -> None:
        """Queue or park the records of a partition, the first `late` of them late ones, and count large ones' bytes."""
        large = fetched.large.get(partition.number, {})
        large_sizes = [(row[ID], large[row[ID]]) for row in rows if row[ID] in large] if large else []
        for id, bytes in large_sizes:
            partition.payload_bytes.add(id, bytes)
        self._queue_new(partition, rows, late, fetched, large=bool(large_sizes))
        if large_sizes:
            partition.payload_bytes.drop(id for id, _ in large_sizes if partition.progress.has_finished(id))

    def _queue_new(
        self, partition: Partition, rows: list[Row], late: int, fetched: FetchedPage, *, large: bool
    ) -> None:
        parked = partition.parked
        last_late = rows[late - 1][ID] if late and self._transactional else 0
        plain = not (
            parked.ahead
            or parked.chains
            or partition.draining
            or partition.suspects.left
            or last_late
            or self.wanted_types is not None
            or (rows and rows[0][ID] <= partition.resumption.done_to)  # done before a lost connection, perhaps (A9)
        )
        has_delayed = fetched.stats.has_delayed and any(map(_available_at, rows))
        if plain and self._scheduler.may_share_lanes and partition.may_share_lane and not has_delayed:
            # Nothing is known of these records, and one runner runs them all: they need no lanes to keep their order
            # (DESIGN 6, shared line).
            shared_lane = partition.shared_lane
            shared_lane.claim = self._build_claim(partition)
            shared_lane.types.add(fetched.stats.types, replace=not shared_lane.queue)
            shared_lane.queue.extend(rows)
            if shared_lane.running or not shared_lane.is_active:
                shared_lane.is_active = True
                self._lengthened.append(shared_lane)
        else:
            self._queue_by_key(partition, rows, last_late, fetched.clock, plain=plain, large=large)

    def _queue_by_key(
        self, partition: Partition, rows: list[Row], last_late: int, clock: int, *, plain: bool, large: bool
    ) -> None:
        """Put each record into the lane of its key, unless it is kept back. `large`: names may be long.

        `plain`: nothing is known of any record, so only those that have a time may be kept back.
        """
        claim, lanes, parked, woken = self._build_claim(partition), partition.lanes, partition.parked, []
        for row in rows:
            event = DeliveredEvent(row, claim)
            if (row[AVAILABLE_AT] is not None or not plain) and self._keep_back(partition, event, last_late, clock):
                plain = plain and not parked.chains
                continue
            key: Key = row[AGGREGATE] if row[AGGREGATE_ID] is not None else (None, row[ID])
            if large:
                key = key_of(event)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = Lane(partition, key)
            lane.queue.append(event)
            if not lane.is_active:
                lane.is_active = True
                woken.append(lane)
        self._scheduler.make_ready(woken)

    def _wake_lengthened(self) -> None:
        """Have the lines run that have got something to do: many at once cost less than each by itself."""
        if self._lengthened:
            shared_lanes, self._lengthened = self._lengthened, []
            self._scheduler.run_or_watch(shared_lanes)

    def _forget_ahead(self, partition: Partition) -> None:
        """Forget which rows were parked ahead of the cursor as far as the log is read by now, and wake their keys.

        A row that was not met has no record any more, or the saved cursor had passed it (EVIDENCE B6).
        """
        last_id = partition.cursor.last_id if partition.cursor.full else float("inf")
        partition.parked.ahead = {id for id in partition.parked.ahead if id > last_id}
        for key in partition.parked.chains:
            self._state.wake(partition, key)

    def _keep_back(self, partition: Partition, event: DeliveredEvent, last_late: int, clock: int) -> bool:
        """Finish an event that is known or unwanted, park one that may not run now; True if it was either.

        The states are those of DESIGN 7; A and B are the entries of EVIDENCE.
        """
        parked, remembered = partition.parked, partition.resumption.remembered
        chain = parked.chains.get(key_of(event))
        if parked.take_ahead(event.id):  # its row says what becomes of it, and may run from now on (B6)
            partition.progress.finish([event.id], [b""])
            self._state.wake(partition, key_of(event))
        elif event.identity in remembered:  # done, or still running, since before a lost connection (A9)
            remembered.discard(event.identity)
            partition.finish([event.record])
        elif self.wanted_types is not None and event.event_type not in self.wanted_types:
            partition.finish([event.record])
        elif _is_scheduled(event.record[AVAILABLE_AT], clock):  # it never blocks
            parked.schedule(event)
        elif partition.draining:  # the rest of a cut page: its next owner runs it (B5)
            parked.park(event, READY)
        elif partition.suspects.includes(event.id):  # it may have killed the last owner: charged before it runs
            parked.suspect(event)
        elif event.id <= last_late:  # no transaction begins beside an unfinished late record (DESIGN 6)
            parked.park(event, READY)
        elif chain is not None and not chain.caught_up():  # another of its key is to run first
            parked.hold(event)
        else:
            return False
        self._state.mark_dirty(partition)
        return True

    def _build_claim(self, partition: Partition) -> ClaimContext:
        return ClaimContext(partition.epoch, *self._claim_parts)


def _split_portions(several: Sequence[T]) -> Iterator[Sequence[T]]:
    """Slices of as many as are moved without letting others have the lock."""
    return (several[at : at + LOCK_PORTION] for at in range(0, len(several), LOCK_PORTION))


def _is_scheduled(available_at: bytes | None, clock: int) -> bool:
    """True if the time of a record had not come by this clock (microseconds since 2000)."""
    return available_at is not None and microseconds(available_at) > clock


def _sort_share(share: PartitionRows) -> PartitionRows:
    """The share sorted by id: late records first, as their ids are lower."""
    rows, ids = share
    ordered = sorted(ids)
    return share if ids == ordered else PartitionRows(sorted(rows, key=_id), ordered)
