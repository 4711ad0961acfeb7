"""Answers to the poller: which partitions it may read, and how much it may read from each. Between an answer and the
poll the room only grows, because no other thread reads."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from partbox.events.record import ID, PARTITION, Row
from partbox.protocol.cursor import LateLimits
from partbox.protocol.horizon import Page
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.poll_groups import PollGroups
from partbox.worker.engine.read_budget import ReadBudget
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState

# Seconds for which a poll waits for more room: while runners may soon be idle, and while they are all supplied.
SHORT_PATIENCE, LONG_PATIENCE = 0.05, 0.15


class Credit(NamedTuple):
    """The limits of one poll: the number of records to read from each partition, and the free bytes in memory."""

    # `rooms` are new records, and `late_limits` bounds the search for late records. `backlog_room` is the room of
    # partitions with a backlog. `is_enough` is True if that is half a page, or less is left to run. `patience` is in
    # seconds. Pass `blocked_by_slow`, whose slow handlers prevent reading, to `Credits.evict_slow`.

    partitions: list[Partition]
    rooms: list[int]
    free_bytes: int
    late_limits: LateLimits
    backlog_room: int
    is_enough: bool
    patience: float
    blocked_by_slow: set[Partition]

    def is_poll_worthwhile(self, waited: float) -> bool:
        """Return True if the unread records justify a poll, `waited` seconds after the last one."""
        # There must be enough room, or any room after `patience` seconds. Saves free little room, and each poll
        # examines all partitions, so a poll at every save would return almost nothing.
        return self.backlog_room > 0 and (self.is_enough or waited > self.patience)


class MemoryLoad(NamedTuple):
    """The numbers of unsaved records, queues of events and partitions in memory at one moment."""

    # `max_records` is the most unsaved records that there may be. A lane is a queue of events.

    records: int
    max_records: int
    lanes: int
    partitions: int


class Credits:
    """The calculation of how many records the poller may read from each partition without overfilling memory.

    Only the poller's thread uses this class."""

    def __init__(
        self, state: EngineState, scheduler: LaneScheduler, budget: ReadBudget, *, transactional: bool
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._scheduler = scheduler
        self._budget = budget
        # True if some handlers are transactional, so that late records wait in no lane.
        self._transactional = transactional

    def set_held_up(self, is_held_up: Callable[[], bool]) -> None:
        """Set the function that returns True if no handler could handle any event, before the threads start."""
        # Reading on would then only cost rows.
        self._budget.is_held_up = is_held_up

    @property
    def brakes(self) -> bool:
        """True if reading stops at `max_parked` rows of a partition, because no handler could handle any event."""
        return self._budget.brakes

    @property
    def is_starved(self) -> bool:
        """True if the memory for records was full when it was last measured."""
        return self._budget.is_starved

    # Ownership adds and drops partitions, and saves change their phases.
    @under_lock
    def group_partitions(self, shared: Page | None) -> PollGroups:
        """Return the partitions that may be polled now, grouped by how they are polled."""
        # Partitions that are behind keep the `shared` page as their own base, because quick polls move the shared page
        # on.
        owned = self._state.partitions.values()
        cut = any(each.cursor.cut_page is not None for each in owned)
        if cut:
            self._budget.count_free_bytes(owned)
        groups = PollGroups([each for each in owned if self._may_poll(each)], cut=cut)
        if groups.caught_up and shared is not None:
            groups.keep_pages(shared)
        return groups

    def note_backlog(self, groups: PollGroups) -> None:
        """Record whether these partitions have unread records, so that the poller reads on after the next save."""
        # If they have, the poller must read on after the next save.
        self._state.has_backlog = bool(groups.behind) or groups.has_cut_page or self._budget.is_starved

    # Runners and saves free room while it is counted.
    @under_lock
    def grant_credit(self, partitions: list[Partition]) -> Credit:
        """Return how many records and bytes a poll may read from these partitions."""
        # This is for a full poll.
        # The `blocked_by_slow` of the result has the running partitions with full windows, or all partitions that run
        # if no bytes are free.
        budget = self._budget
        left = budget.count_free_bytes(self._state.partitions.values())
        rooms = budget.share_rooms(partitions, left)
        pairs = list(zip(partitions, rooms, strict=True))
        backlog = sum(room for each, room in pairs if each.cursor.may_have_backlog)
        is_enough = backlog > 0 and budget.is_enough(partitions, backlog)
        blocked_by_slow = self._find_blocked(each for each, room in pairs if room == 0 and budget.is_window_full(each))
        patience = LONG_PATIENCE if self._scheduler.is_supplied else SHORT_PATIENCE
        return Credit(
            partitions,
            rooms,
            left,
            budget.compute_late_limits(len(partitions), left),
            backlog,
            is_enough,
            patience,
            blocked_by_slow,
        )

    # Runners and saves free room while it is counted.
    @under_lock
    def recount_bytes(self) -> set[Partition]:
        """Measure the free memory for records again. If there is none, return the partitions that hold up reading."""
        # In these partitions, running handlers or handlers with a limit may hold bytes for long.
        self._budget.count_free_bytes(self._state.partitions.values())
        return self._find_blocked(())

    # A lane ends or its event is parked, but never both.
    @under_lock
    def evict_slow(self, blocked_by_slow: Collection[Partition], now: float) -> None:
        """Move slow events of these partitions to database rows of their own, so that more records can be read."""
        # Slow events ran or waited too long. The later events of their keys are parked too. The handlers of slow events
        # go on.
        self._scheduler.evict_slow(blocked_by_slow, now)

    # Runners and saves free room while it is counted.
    @under_lock
    def find_unshared_rooms(self, partitions: Sequence[Partition]) -> list[int]:
        """Return how many new records each partition could read if it had a whole page to itself."""
        # The number is limited by the window of the partition, the bound on its unsaved records.
        return [self._budget.find_unshared_room(each) for each in partitions]

    # Handlers that end free bytes.
    @under_lock
    def find_greedy(self, credit: Credit) -> set[int]:
        """Return the numbers of partitions that hold too much memory to get another large payload."""
        # Such partitions have more payload bytes than the credit has left, so no partition holds more than half of the
        # bytes that the others leave.
        return {each.number for each in credit.partitions if self._budget.is_greedy(each, credit.free_bytes)}

    def reserve_page(self, caught_up: Mapping[int, Partition], rows: Sequence[Row]) -> bool:
        """Reserve memory for the rows of a page. Return False if they do not all fit."""
        # The page comes from a quick poll. Late rows need no memory. A page that does not fit is discarded, and all
        # partitions are polled in full.
        self._budget.learn_size(rows)
        ids: defaultdict[int, list[int]] = defaultdict(list)
        for row in rows:
            ids[row[PARTITION]].append(row[ID])
        # Runners and saves free room while it is counted.
        with self._lock:
            fits = all(self._has_room(caught_up[number], its) for number, its in ids.items())
            return fits and self._budget.reserve(len(rows), self._state.partitions.values())

    # The lock guards the bytes that partitions hold.
    @under_lock
    def bytes_for_quick_page(self, records: int) -> int:
        """Return how many bytes of large payloads a page of this many records may contain."""
        # The page is polled quickly.
        # `records` is the number of records of the page. The result is at least 1 if any bytes are free.
        return self._budget.bytes_for_payloads(records, self._budget.count_free_bytes(self._state.partitions.values()))

    def bytes_for_payloads(self, records: int, free_bytes: int) -> int:
        # `records` is the number of records of the page. The result is at least 1 if any bytes are left.
        return self._budget.bytes_for_payloads(records, free_bytes)

    def note_poll_in_time(self, rows: Sequence[Row]) -> None:
        """Raise the reduced size of polls again, because a poll was answered in time."""
        # The poll was a full poll.
        # The estimated size of a record is updated from these rows.
        self._budget.note_poll_in_time()
        self._budget.learn_size(rows)

    def note_timeout(self, credit: Credit) -> None:
        """Halve the size of the next poll, because a poll took too long."""
        # The poll was a full poll.
        # The number of records is halved down to one record.
        self._budget.note_timeout(credit.rooms)

    # All sums belong to one moment.
    @under_lock
    def measure_load(self) -> MemoryLoad:
        # Lost partitions do not count. A lane is a queue of events of one key.
        owned = [each for each in self._state.partitions.values() if not each.is_lost]
        records = sum(each.progress.count_unsaved() for each in owned)
        return MemoryLoad(
            records, self._budget.sum_windows(owned), sum(each.count_lanes() for each in owned), len(owned)
        )

    # The lock guards the partitions and their parked rows.
    @under_lock
    def count_open_rows(self) -> dict[int, int]:
        """Return how many events of each partition wait for a retry or wait behind a failed event."""
        # The events are open parked rows: dead rows, and rows that only wait for a permit or a time, do not count.
        # A partition with too many such parked rows reads no new records (the brake).
        # This runs in every tick, where calls of the property `is_lost` would take noticeable time.
        owned = self._state.partitions.items()
        return {number: each.parked.open_count for number, each in owned if each.phase is not Phase.LOST}

    def _has_room(self, partition: Partition, ids: list[int]) -> bool:
        return len(ids) - bisect_right(ids, partition.cursor.last_id) <= self._budget.room_of(partition)

    def _find_blocked(self, full: Iterable[Partition]) -> set[Partition]:
        # If no bytes are free, any partition may hold them. While a handler has a limit, lanes that wait for it hold
        # back reading too.
        in_the_way = self._state.partitions.values() if self._budget.is_starved else full
        return {each for each in in_the_way if each.running_count or self._scheduler.limited_queue is not None}

    def _may_poll(self, partition: Partition) -> bool:
        phase = partition.phase
        if phase in (Phase.LOST, Phase.LOADING):
            return False
        if partition.cursor.cut_page is None:
            return phase is not Phase.DRAINING
        # A cut page is read to its end even while the partition drains, because a release saves no cursor inside a cut
        # page. The late records are parked then. Transactional handlers have the late records parked too,
        # because effects wait for the whole page, and the bytes would never be freed. Otherwise there must be bytes for
        # the next piece.
        parks = phase is Phase.DRAINING or self._transactional
        return parks or not (self._budget.is_starved or self._budget.awaits_bytes(partition))
