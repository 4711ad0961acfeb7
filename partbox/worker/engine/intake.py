"""Intake of pages: turns each record of a poll into an event that waits in a lane, or into a parked row. A page first
moves the cursors of the polled partitions. Then its records are handed over to the lanes."""

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
    IDENTITY,
    PARTITION,
    PageStats,
    PartitionRows,
    Row,
    lacks_names,
    parse_microseconds,
)
from partbox.protocol.cursor import LateLimits, PagePart, ReadRequest
from partbox.protocol.horizon import Page
from partbox.worker.engine.key import Key, key_of
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.saves import READY
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState

# Partitions per hold of the lock. A poller that takes the lock for each of 256 partitions disturbs runners as often.
LOCK_PORTION = 16

_id, _available_at, _identity = itemgetter(ID), itemgetter(AVAILABLE_AT), itemgetter(IDENTITY)

T = TypeVar("T")


class FetchedPage(NamedTuple):
    """The records and statistics that one poll has read from the event log."""

    # Some records are without their payload for lack of memory.

    rows: list[Row]
    # Sizes of large records, by partition and record id.
    large_sizes: dict[int, dict[int, int]]
    # The first record id that was left out, by partition.
    first_omitted: dict[int, int]
    # The limits of the search for late records. No more are taken of each partition.
    late_limits: LateLimits
    # The server's clock at the poll, in microseconds since 2000.
    server_clock: int
    stats: PageStats
    # Partitions that may have more records, although there was room for more.
    cut_partitions: Container[int] = ()

    def has_usable_rows(self) -> bool:
        """Return True if the poll has returned at least one record that can be used now."""
        # A page has none if it begins, for every partition, with a record whose payload was left out.
        return not self.first_omitted or any(
            row[ID] < self.first_omitted.get(row[PARTITION], row[ID] + 1) for row in self.rows
        )


class MovedPage(NamedTuple):
    """New records of one partition that were read and are not queued for handlers yet."""

    # The partition's cursor has moved past the rows of the page already.

    partition: Partition
    page_part: PagePart
    rows: list[Row]


class Intake:
    """The part of the engine that queues polled records for handlers, or sets them aside in database rows for later.

    A record in such a row is parked."""

    def __init__(
        self, state: EngineState, scheduler: LaneScheduler, claim: ClaimContext, *, transactional: bool
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._scheduler = scheduler
        self._claim_parts = claim[1:]
        # With transactional handlers, a late record is parked before any record after it runs.
        self._transactional = transactional
        # Shared lanes that got longer in this critical section.
        self._lengthened_lanes: list[SharedLane] = []
        # The event types that the subscription takes, None for all types.
        self.wanted_types: frozenset[str] | None = None
        # The last unwanted record that quick polls have found for each caught-up partition.
        self._passed_rows: dict[Partition, Row] = {}

    def restart(self, wanted_types: frozenset[str] | None) -> None:
        """Begin a session, in which the subscription takes events of `wanted_types`, or of all types if None."""
        # After a crash the server may use ids again, so no record of an earlier session may move a cursor.
        self.wanted_types, self._passed_rows = wanted_types, {}

    def wants_type(self, event_type: str) -> bool:
        """Return True if the subscription takes events of this type."""
        return self.wanted_types is None or event_type in self.wanted_types

    def advance_to_page(
        self, asked: Sequence[tuple[Partition, ReadRequest, int]], page: Page, fetched: FetchedPage, *, together: bool
    ) -> list[MovedPage]:
        """Move the read positions of partitions past a page of records. Return the records to queue for handlers
        next."""
        # The parts must be passed to `hand_over`. Each partition comes with its request and the floor of its late
        # search. `together` means that the partitions share the page.
        by_partition, moved = fetched.stats.by_partition, list[MovedPage]()
        for some in _split_portions(asked):
            # Cursor and progress move in one step. A save in between would pass records that no lane has.
            with self._lock:
                for partition, ask, floor in some:
                    if not partition.is_lost:
                        share = by_partition.get(partition.number) or PartitionRows([], [])
                        one = self._move_cursor(partition, ask, page, floor, share, fetched, together=together)
                        # A draining partition may be released at any time, and a release parks only events in lanes.
                        if one.page_part.is_piece or partition.is_draining:
                            self._hand_over_moved(one, fetched)
                        else:
                            moved.append(one)
                self._wake_lengthened()
        return moved

    def hand_over(self, moved: Sequence[MovedPage], fetched: FetchedPage) -> None:
        """Queue the records of a page for their handlers."""
        # The read positions have advanced to the page before.
        # This must come before the next page moves any cursor.
        for some in _split_portions(moved):
            # The lock is released between portions, so that runners do not wait for a whole page.
            with self._lock:
                for each in some:
                    if not each.partition.is_lost:
                        self._hand_over_moved(each, fetched)
                self._wake_lengthened()

    def pass_unwanted(self, caught_up: Mapping[int, Partition], rows: list[Row]) -> list[Row]:
        """Return the rows of a quickly polled page whose types the subscription wants."""
        # The shared page says that the other records are read, and `move_caught_up` moves the cursors past them later:
        # to move and save a cursor for each of them would cost as much as to deliver them. A record without its names
        # is kept until they are fetched.
        if self.wanted_types is None:
            return rows
        kept = []
        for row in rows:
            if row[EVENT_TYPE] is None or row[EVENT_TYPE] in self.wanted_types:
                kept.append(row)
            else:
                partition = caught_up[row[PARTITION]]
                # A record that was committed late has a lower id than a record of an earlier page.
                self._passed_rows[partition] = max(row, self._passed_rows.get(partition, row), key=_id)
        return kept

    def take_quick_page(self, caught_up: Mapping[int, Partition], page: Page, fetched: FetchedPage) -> None:
        """Queue the records of a quickly polled page for handlers, and move the read positions of their partitions."""
        # The partitions are caught up. Only the cursors of partitions with records in the page are moved.
        for number, share in fetched.stats.by_partition.items():
            partition = caught_up[number]
            # A partition may be lost between two partitions' steps, but not within one.
            with self._lock:
                if not partition.is_lost:
                    self._move_caught_up(partition, page, share, fetched)
                self._wake_lengthened()

    def move_caught_up(self, partitions: Iterable[Partition], page: Page) -> None:
        """Move the read positions of partitions past a page that has no wanted records for them."""
        # The partitions are caught up. A save can then pass the page.
        passed_rows, self._passed_rows = self._passed_rows, {}
        for partition in partitions:
            row = passed_rows.get(partition)
            # The check and the move are one step: the saver may drop a lost partition.
            with self._lock:
                if not partition.is_lost:
                    rows = [row] if row is not None and row[ID] > partition.cursor.last_id else []
                    self._move_caught_up(partition, page, PartitionRows(rows, [*map(_id, rows)]), None)
                    if rows:
                        self._finish_unwanted(partition, rows)

    def needs_parts(self, partition: Partition, row: Row, clock: int) -> bool:
        """Return True if the left-out payload or names of a large record must be fetched now."""
        # The parts were left out of a page. They are needed if the event may run or if its names are missing.
        # Names are always needed, because the record may be parked under them.
        if lacks_names(row):
            return True
        # The payload is needed only if the event may run: not if it will be parked as late or by a drain, if it is not
        # due by this clock, or if the subscription does not take its type.
        if partition.is_draining or (self._transactional and row[ID] <= partition.cursor.last_id):
            return False
        return not _is_scheduled(row[AVAILABLE_AT], clock) and self.wants_type(row[EVENT_TYPE])

    def _move_cursor(
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
        # Records behind an omitted payload count as not asked for. `whole` is below 0 if the payload of a late record
        # was omitted. Late records are kept whatever the room.
        late = bisect_right(ids, ask.last_id)
        end = fetched.first_omitted.get(partition.number)
        whole = (len(ids) if end is None else bisect_left(ids, end)) - late
        kept = late + min(ask.room, whole)
        new, rows = ids[late:kept], rows[:kept]
        limits = fetched.late_limits
        if end is not None:
            limits = limits._replace(records=min(kept, limits.records))
        if end is not None or partition.number in fetched.cut_partitions:
            # With this room the page counts as full, so the cursor knows that there is more.
            ask = ask.with_room(len(new))
        if end is not None:
            partition.max_records = 2 * max(0, whole) + 1
        elif partition.max_records is not None and (new or not partition.payload_bytes.total):
            partition.raise_max_records()
        reading = partition.cursor.take_page(ask, page, floor, ids[:late], new, together=together, limits=limits)
        if reading.is_piece:
            partition.progress.take_piece(reading.page, reading.late_ids, reading.is_last)
            rows = rows[: len(reading.late_ids)]
        else:
            partition.progress.take_page(reading.page, reading.late_ids, reading.new_ids, reading.raised_to)
        return MovedPage(partition, reading, rows)

    def _hand_over_moved(self, moved: MovedPage, fetched: FetchedPage) -> None:
        partition, reading, rows = moved
        had_ahead = bool(partition.parked.ahead_ids)
        if rows:
            self._hand_over(partition, rows, len(reading.late_ids), fetched)
        if reading.is_piece:
            # No cursor inside a cut page is saved, so only the last piece makes finished records savable.
            if partition.is_draining or (reading.is_last and partition.progress.count_finished()):
                self._state.mark_dirty(partition)
            return
        if not partition.cursor.may_have_backlog:
            # The dead process cannot have had records from after an uncut page.
            partition.suspects.expected_count = 0
        if had_ahead:
            self._forget_ahead(partition)

    def _move_caught_up(
        self, partition: Partition, page: Page, share: PartitionRows, fetched: FetchedPage | None
    ) -> None:
        rows, ids = share
        reading = partition.cursor.take_quick(page, ids)
        partition.progress.take_page(reading.page, reading.late_ids, reading.new_ids, reading.raised_to)
        if partition.max_records is not None:
            partition.raise_max_records()
        if fetched is not None:
            self._hand_over(partition, rows, len(reading.late_ids), fetched)

    def _hand_over(self, partition: Partition, rows: list[Row], late: int, fetched: FetchedPage) -> None:
        large = fetched.large_sizes.get(partition.number, {})
        large_sizes = [(row[ID], large[row[ID]]) for row in rows if row[ID] in large] if large else []
        for id, bytes in large_sizes:
            partition.payload_bytes.add(id, bytes)
        self._queue_new(partition, rows, late, fetched, large=bool(large_sizes))
        if large_sizes:
            partition.payload_bytes.drop(id for id, _ in large_sizes if partition.progress.has_finished(id))

    def _queue_new(
        self, partition: Partition, rows: list[Row], late: int, fetched: FetchedPage, *, large: bool
    ) -> None:
        # New records are queued for handlers, and records that must not run now are parked.
        # The first `late` records are late.
        parked = partition.parked
        last_late = rows[late - 1][ID] if late else 0
        if self.wanted_types is not None:
            rows = self._finish_unwanted(partition, rows)
        # True if nothing is known that could keep a record of the page back. Ids up to `max_remembered_id` may be done
        # since before a lost connection.
        plain = not (
            parked.ahead_ids
            or parked.chains
            or partition.is_draining
            or partition.suspects.expected_count
            or (last_late and self._transactional)
            or partition.has_running_predecessor
            or (rows and rows[0][ID] <= partition.resumption.max_remembered_id)
        )
        has_delayed = fetched.stats.has_delayed and any(map(_available_at, rows))
        if plain and self._scheduler.may_share_lanes and partition.may_share_lane and not has_delayed:
            # One runner handles the records in order, so they need no lanes by key.
            shared_lane = partition.shared_lane
            shared_lane.claim = self._build_claim(partition)
            types = fetched.stats.types if self.wanted_types is None else fetched.stats.types & self.wanted_types
            shared_lane.types.add(types, replace=not shared_lane.queue)
            shared_lane.queue.extend(rows)
            if shared_lane.is_running or not shared_lane.is_active:
                shared_lane.is_active = True
                self._lengthened_lanes.append(shared_lane)
        else:
            self._queue_by_key(partition, rows, last_late, fetched.server_clock, plain=plain, large=large)

    def _finish_unwanted(self, partition: Partition, rows: list[Row]) -> list[Row]:
        """Finish the records whose types the subscription does not want. Return the other records."""
        # A row that was parked ahead of the cursor decides about its event, whatever the type.
        ahead_ids, kept, unwanted = partition.parked.ahead_ids, list[Row](), list[Row]()
        for row in rows:
            (kept if self.wants_type(row[EVENT_TYPE]) or row[ID] in ahead_ids else unwanted).append(row)
        if unwanted:
            partition.resumption.remembered.difference_update(map(_identity, unwanted))
            partition.finish_rows(unwanted)
            self._state.mark_dirty(partition)
        return kept

    def _queue_by_key(
        self, partition: Partition, rows: list[Row], last_late: int, clock: int, *, plain: bool, large: bool
    ) -> None:
        # Each record is queued with the earlier events of its key, unless the event must not run now.
        # Each key has a lane (queue). `large` means that the names in the records may be long.
        claim, lanes, parked, woken = self._build_claim(partition), partition.lanes, partition.parked, []
        for row in rows:
            event = DeliveredEvent(row, claim)
            # Of plain records nothing is known, so only records with a time may have to be kept back.
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
        # One call for many lanes costs less than a call for each.
        if self._lengthened_lanes:
            shared_lanes, self._lengthened_lanes = self._lengthened_lanes, []
            self._scheduler.run_or_watch(shared_lanes)

    def _forget_ahead(self, partition: Partition) -> None:
        # The read position has now passed the records of rows that were parked ahead of the cursor. The keys that they
        # blocked are scheduled. A row that was not met has no record any more, or the saved cursor had passed its
        # record.
        last_id = partition.cursor.last_id if partition.cursor.may_have_backlog else float("inf")
        partition.parked.ahead_ids = {id for id in partition.parked.ahead_ids if id > last_id}
        for key in partition.parked.chains:
            self._state.schedule_wakeup(partition, key)
        if partition.parked.early_ids:
            self._state.early_partitions.add(partition.number)

    def _keep_back(self, partition: Partition, event: DeliveredEvent, last_late: int, clock: int) -> bool:
        """Finish an event or set it aside in a database row, if it must not run now. Return True if it must not."""
        # An event that is known is finished at once. Any other event is parked (set aside in a row of its
        # own). The module `partbox.protocol.parking` defines the states of a row.
        parked, remembered = partition.parked, partition.resumption.remembered
        chain = parked.chains.get(key_of(event))
        is_blocked = chain is not None and not chain.is_caught_up()
        if parked.take_ahead(event.id):
            # The row of the event decides about it, and may run from now on.
            partition.progress.finish([event.id], [b""])
            self._state.schedule_wakeup(partition, key_of(event))
        elif event.identity in remembered:
            # Done, or still running, since before a lost connection.
            remembered.discard(event.identity)
            partition.finish_rows([event.record])
        elif _is_scheduled(event.record[AVAILABLE_AT], clock):
            # A scheduled event never blocks its key.
            parked.park_scheduled(event)
        elif is_blocked and event.id > last_late and parked.pass_spilled(event, partition.resumption.read_to):
            # The key has enough rows already, so this event stays in the log and costs none. It may be a suspect: if it
            # kills its process after it has come back from the log, its row makes it a suspect again.
            pass
        elif partition.is_draining:
            # The rest of a cut page is left to the next owner.
            parked.park(event, READY)
        elif partition.suspects.includes(event.id):
            # The event may have killed the last owner, so its attempt is charged before it runs.
            parked.park_suspect(event)
        elif partition.runs_before(key_of(event)):
            # A handler of the key still runs since an earlier ownership, and may hang. All other keys go on.
            parked.park(event, READY)
        elif event.id <= last_late and self._transactional:
            # No transaction begins beside an unfinished late record.
            parked.park(event, READY)
        elif is_blocked:
            # Another event of the key must run first.
            parked.park_behind(event)
        else:
            return False
        self._state.mark_dirty(partition)
        return True

    def _build_claim(self, partition: Partition) -> ClaimContext:
        return ClaimContext(partition.epoch, *self._claim_parts)


def _split_portions(several: Sequence[T]) -> Iterator[Sequence[T]]:
    # Each slice has `LOCK_PORTION` items and is handled under one hold of the lock.
    return (several[at : at + LOCK_PORTION] for at in range(0, len(several), LOCK_PORTION))


def _is_scheduled(available_at: bytes | None, clock: int) -> bool:
    # The clock is in microseconds since 2000.
    return available_at is not None and parse_microseconds(available_at) > clock


def _sort_share(share: PartitionRows) -> PartitionRows:
    # Late records come first, since their ids are lower.
    rows, ids = share
    ordered = sorted(ids)
    return share if ids == ordered else PartitionRows(sorted(rows, key=_id), ordered)
