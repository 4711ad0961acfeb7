"""The façade of whoever reads the log: which partitions may be read, and how much each may bring.

The reader asks for a `Credit` before each poll. Handlers that end, and saves, make room meanwhile, so it is a lower
bound; only the poller's thread reads, so nothing takes any of it away.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from partbox.events.record import ID, PARTITION, Row
from partbox.protocol.horizon import Page
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.poll_groups import PollGroups
from partbox.worker.engine.read_budget import ReadBudget
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState

# Seconds for which little room is left alone: runners may soon have nothing to do, or have more than they can take.
SHORT_PATIENCE, LONG_PATIENCE = 0.05, 0.15


class Credit(NamedTuple):
    """The bounds of one poll of these partitions: new records of each, bytes of all, late records of any.

    `backlog` is the part of the rooms that belongs to partitions with a backlog. `is_enough`: it is half a page, or
    less than that is left to run. `patience`: the seconds after the last poll for which less than enough is left alone.
    `blocked_by_slow` are the partitions whose handlers stand in the way of reading on: whoever asked lets these be
    parked that have run too long (`Credits.evict_slow`).
    """

    partitions: list[Partition]
    rooms: list[int]
    bytes: int
    cap: int
    backlog: int
    is_enough: bool
    patience: float
    blocked_by_slow: set[Partition]

    def is_worth(self, waited: float) -> bool:
        """True if a poll is worth its cost for the backlog alone: it may bring half a page, or less is left to run.

        Saves make room piece by piece, and each poll looks into all partitions: polled for at once, most would bring
        next to nothing. If the last poll was long ago, `waited` seconds, a single record is worth it.
        """
        return self.backlog > 0 and (self.is_enough or waited > self.patience)


class MemoryLoad(NamedTuple):
    """The records that were read and are not saved, how many there may be, lanes with something to do, partitions."""

    records: int
    bound: int
    lanes: int
    partitions: int


class Credits:
    """Asked by the poller's thread only. `transactional`: some handlers are, so late records wait in no lane."""

    def __init__(
        self, state: EngineState, scheduler: LaneScheduler, budget: ReadBudget, *, transactional: bool
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._scheduler = scheduler
        self._budget = budget
        self._transactional = transactional

    @property
    def is_starved(self) -> bool:
        """True if the bytes were used up when they were last counted."""
        return self._budget.is_starved

    @under_lock  # partitions come and go with ownership; a phase changes with a save
    def groups(self, shared: Page | None) -> PollGroups:
        """The partitions that may be read now; those that are behind leave the page that the others share."""
        owned = self._state.partitions.values()
        cut = any(each.cursor.cut is not None for each in owned)
        if cut:
            self._budget.left(owned)
        groups = PollGroups([each for each in owned if self._may_poll(each)], cut=cut)
        if groups.caught_up and shared is not None:
            groups.stay(shared)
        return groups

    def note_backlog(self, groups: PollGroups) -> None:
        """Remember whether there is more to read than there is room for: then a save wakes the poller."""
        self._state.backlog = bool(groups.behind) or groups.cut or self._budget.is_starved

    @under_lock  # runners and saves free room while it is counted
    def ask(self, partitions: list[Partition]) -> Credit:
        """The credit of a poll of these partitions, one or more.

        Of those whose window is full the running ones are named, which stand in the way of reading on; or of all that
        the process owns, where the bytes are used up.
        """
        budget = self._budget
        left = budget.left(self._state.partitions.values())
        rooms = budget.share_rooms(partitions, left)
        pairs = list(zip(partitions, rooms, strict=True))
        backlog = sum(room for each, room in pairs if each.cursor.full)
        is_enough = backlog > 0 and budget.is_enough(partitions, backlog)
        blocked_by_slow = self._blocked_by_slow(each for each, room in pairs if room == 0 and budget.full(each))
        patience = LONG_PATIENCE if self._scheduler.is_supplied else SHORT_PATIENCE
        return Credit(
            partitions, rooms, left, budget.cap(len(partitions), left), backlog, is_enough, patience, blocked_by_slow
        )

    @under_lock  # as in `ask`
    def recount_bytes(self) -> set[Partition]:
        """Count anew the bytes that were used up; if they still are, the partitions that hold some and run."""
        self._budget.left(self._state.partitions.values())
        return self._blocked_by_slow(())

    @under_lock  # a lane ends, or its event is parked, never both
    def evict_slow(self, blocked_by_slow: Collection[Partition], now: float) -> None:
        """Park what has run too long in these partitions, though it goes on here, and its key behind it."""
        self._scheduler.evict_slow(blocked_by_slow, now)

    @under_lock  # as in `ask`
    def widest(self, partitions: Sequence[Partition]) -> list[int]:
        """The room of each of these if it may have more of a page than its share: all that its window leaves."""
        return [self._budget.widest(each) for each in partitions]

    @under_lock  # handlers that end let go bytes
    def greedy(self, credit: Credit) -> set[int]:
        """The numbers of the partitions that hold more bytes than were left: they get no large payload now.

        So none holds more than half of what the others leave.
        """
        return {each.number for each in credit.partitions if self._budget.greedy(each, credit.bytes)}

    def reserve_page(self, caught_up: Mapping[int, Partition], rows: Sequence[Row]) -> bool:
        """True if there is room for all rows of a quick page: they are counted then. Late ones need none.

        Else the page is discarded, nothing moves, and all is polled in full (⛨ DESIGN 4, EVIDENCE H2).
        """
        self._budget.learn_size(rows)
        ids: defaultdict[int, list[int]] = defaultdict(list)
        for row in rows:
            ids[row[PARTITION]].append(row[ID])
        with self._lock:  # as in `ask`
            fits = all(self._has_room(caught_up[number], its) for number, its in ids.items())
            return fits and self._budget.reserve(len(rows), self._state.partitions.values())

    @under_lock  # guards the bytes that partitions hold
    def bytes_for_quick_page(self, records: int) -> int:
        """The bytes for the large payloads of a quick page of so many records: at least 1 while any are left."""
        return self._budget.bytes_for_payloads(records, self._budget.left(self._state.partitions.values()))

    def bytes_for_payloads(self, records: int, left: int) -> int:
        """The bytes, of `left`, for the large payloads of a page of so many records: at least 1 while any are left."""
        return self._budget.bytes_for_payloads(records, left)

    def came(self, rows: Sequence[Row]) -> None:
        """A full poll came in time, with these rows: where credits were cut they grow, and sizes are learned."""
        self._budget.came()
        self._budget.learn_size(rows)

    def note_timeout(self, credit: Credit) -> None:
        """A poll with this credit took too long: the next gets half of it, down to one record."""
        self._budget.note_timeout(credit.rooms)

    @under_lock  # all sums are of one moment
    def load(self) -> MemoryLoad:
        """Measure what is in memory, and how much may be."""
        owned = [each for each in self._state.partitions.values() if not each.lost]
        records = sum(each.progress.unsaved() for each in owned)
        return MemoryLoad(records, self._budget.bound(owned), sum(each.count_lanes() for each in owned), len(owned))

    @under_lock  # guards the partitions and their parked rows
    def count_open_rows(self) -> dict[int, int]:
        """The parked rows that count against the brake, by partition."""
        owned = self._state.partitions.items()  # in each tick, where the property `lost` of so many would show
        return {number: each.parked.open for number, each in owned if each.phase is not Phase.LOST}

    def _has_room(self, partition: Partition, ids: list[int]) -> bool:
        return len(ids) - bisect_right(ids, partition.cursor.last_id) <= self._budget.room_of(partition)

    def _blocked_by_slow(self, full: Iterable[Partition]) -> set[Partition]:
        """Partitions that run, or have something that waits for a turn, among those with a full window; among all,
        where the bytes are used up."""
        in_the_way = self._state.partitions.values() if self._budget.is_starved else full
        return {each for each in in_the_way if each.running or self._scheduler.limited is not None}

    def _may_poll(self, partition: Partition) -> bool:
        """True if it may be polled: its parked rows are known, and it is neither lost nor draining.

        A cut page is read on while its partition drains, for a release saves no cursor inside one (DESIGN 5). Late
        records are parked then, and with transactional handlers too, whose effects wait for the whole page: the bytes
        that they hold would never be let go. Else there must be bytes for the next piece.
        """
        phase = partition.phase
        if phase is Phase.LOST or not partition.may_begin():
            return False
        if partition.cursor.cut is None:
            return phase is not Phase.DRAINING
        parks = phase is Phase.DRAINING or self._transactional
        return parks or not (self._budget.is_starved or self._budget.awaits_bytes(partition))
