"""One owned partition in memory: where it is read, what is finished, what runs, and its phase; and its lanes.

A lane has the events of one aggregate key that wait in this process, in id order; one of them runs at a time (⛨ DESIGN
6). A lane knows its partition and a partition its lanes, so both are here.

Lanes are not made for events of which nothing is known: those of a partition stand in line together, which keeps the
order of every key, and are sorted into lanes when somebody asks for these, or has nothing else to run
(`LaneScheduler.split_blocking_lanes`).

Everything is touched only with the lock of `Engine` held, but for `cursor`, which is the poller's own, and for
`phase`, `is_stopping`, `incarnation` and `resumption.remembered`, which are read without it.
"""

from collections import deque
from collections.abc import Sequence
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from partbox.events import ClaimContext, DeliveredEvent
from partbox.events.record import EVENT_ID, ID, IDENTITY, Row
from partbox.protocol.cursor import Cursor
from partbox.protocol.horizon import Page
from partbox.protocol.progress import Progress, SaveTarget, free_empty_tables
from partbox.protocol.rows import OwnedPartition, ProgressNote
from partbox.worker.engine.key import Key, key_of
from partbox.worker.engine.last_save import LastNote, LastSave
from partbox.worker.engine.parked_rows import ParkedRows, PayloadBytes
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.resumption import Resumption
from partbox.worker.engine.shared_lane_types import SharedLaneTypes
from partbox.worker.engine.suspects import Suspects

NO_KEYS = frozenset[Key]()

_id, _event_id, _identity = itemgetter(ID), itemgetter(EVENT_ID), itemgetter(IDENTITY)


class Lane:
    """`is_active` from when it is ready to run until it is empty; `running` while its `current` event's handler runs.

    The queue has events; or rows, which become events of `claim` as they run, if that is set.

    An event without an aggregate id has a lane of its own, which no other event ever joins: its key is (None, id).
    """

    __slots__ = (
        "claim",
        "current",
        "done",
        "ended_event",
        "head",
        "incarnation",
        "is_active",
        "key",
        "parked_running",
        "partition",
        "queue",
        "remembered_count",
        "running",
        "started"
    )  # fmt: skip

    # Set when the lane begins to run:
    incarnation: int  # the partition's incarnation that `done` belongs to
    started: float  # monotonic seconds; of the current event, while one runs
    head: Row | None  # of a line: see there
    # Set when a `current` event is settled, which stays current until the next begins. Not before, most never need it:
    ended_event: DeliveredEvent | None

    def __init__(self, partition: "Partition", key: Key) -> None:
        self.partition = partition
        self.key = key
        self.queue: deque[Any] = deque()
        self.claim: ClaimContext | None = None
        self.done: list[Row] = []  # of what is done and not recorded yet
        self.remembered_count = 0  # how many of `done`, the first ones, are remembered already
        self.is_active = False
        self.running = False
        self.current: DeliveredEvent | None = None
        self.parked_running: DeliveredEvent | None = None  # parked while its handler went on running

    def event(self, waiting: Any) -> DeliveredEvent:
        """The event of what waits in its queue."""
        return waiting if self.claim is None else DeliveredEvent(waiting, self.claim)

    def has_ended(self, event: DeliveredEvent) -> bool:
        """True if its current event, which this is, is settled already. Lock held."""
        return getattr(self, "ended_event", None) is event

    def begin(self, event: DeliveredEvent, now: float) -> None:
        """The event runs from now on (monotonic seconds). By its runner, without the lock."""
        self.started, self.current = now, event

    def rest(self) -> None:
        """Nothing of it runs. By its runner, without the lock."""
        self.current = None

    def note_done(self, event: DeliveredEvent) -> None:
        """The event is plainly done. By its runner, without the lock."""
        self.done.append(event.record)

    def take_first(self) -> DeliveredEvent:
        """Take the event at the head; IndexError if there is none any more. By its runner, without the lock."""
        if self.claim is None:
            return self.queue.popleft()  # type: ignore[no-any-return]
        self.head = self.queue[0]  # before it is taken: whoever sorts the line must see which key runs
        return DeliveredEvent(self.queue.popleft(), self.claim)

    def take_rest(self) -> list[Any]:
        """Take all that waits. Lock held.

        Its runner may be taking events from the left meanwhile, without the lock. So they are taken from the right:
        what is taken are always the last ones, and what runs are those before them.
        """
        taken: list[Any] = []
        while self.queue:
            try:
                taken.append(self.queue.pop())
            except IndexError:  # the runner has taken the last one
                break
        return taken[::-1]

    def park_waiting(self) -> None:
        """Park what waits in the lane behind a blocked event. Lock held."""
        for event in self.take_rest():
            self.partition.parked.hold(event)

    def would_overtake(self, event: DeliveredEvent) -> bool:
        """True if the event, at the head, would run before one of its key that must run first. Lock held."""
        chain = self.partition.parked.chains.get(self.key)
        if chain is None:
            return False
        id = event.id
        return any(not row.loaded for row in chain.before(id)) or any(each.id < id for each in self.queue)

    def lane_behind(self, event: DeliveredEvent) -> "Lane":
        """The lane in which what comes after this event of it waits. Lock held."""
        return self


class SharedLane(Lane):
    """The new events of all keys of a partition in id order, none of which is parked.

    Either it has events that wait, or lanes have: whoever looks for a lane has the line sorted into lanes, and nothing
    joins it any more until its turn has ended. These are ready then, or when a runner is free for them
    (`LaneScheduler.split_blocking_lanes`), but for the lanes of the keys that the line runs. Its queue has rows: an
    event that is made by the runner which hands it over is still in the processor's cache, and its memory serves the
    next one.

    `head` is the row that its runner has taken last, or is about to take; None while it does not run. The runner sets
    it before it takes the row, without the lock: so whoever has taken the rest of the queue knows which key runs.
    `is_split`: it was sorted in this turn. `has_unreported_lanes`: nobody was told of the lanes that it was sorted
    into.
    """

    __slots__ = ("_keys", "has_unreported_lanes", "in_hand", "is_split", "types")

    def __init__(self, partition: "Partition") -> None:
        super().__init__(partition, (None, 0))
        self.types = SharedLaneTypes()
        self.end_turn()

    def end_turn(self) -> None:
        """End the turn of its runner, and keep no event. Lock held."""
        self.head, self.is_split, self.has_unreported_lanes, self.ended_event = None, False, False, None
        self.hold(())

    def hold(self, events: Sequence[DeliveredEvent]) -> None:
        """Its runner has these in hand, as a list. Lock held."""
        self.in_hand, self._keys = events, NO_KEYS

    def runs_key(self, key: Key) -> bool:
        """True if its runner may have an event of this key in hand. Lock held."""
        if not self.in_hand:
            return self.head is not None and key_of(self.event(self.head)) == key
        self._keys = self._keys or frozenset(map(key_of, self.in_hand))  # once a list, if somebody asks at all
        return key in self._keys

    def lane_behind(self, event: DeliveredEvent) -> Lane:
        return self.partition.lane(key_of(event))


class Tenure(NamedTuple):
    """One ownership of a partition. An epoch never repeats, so what is said of a tenure is said of no other."""

    number: int
    epoch: int


class Partition:
    """A partition from claim to release, or until it is lost.

    `dead_letters`: dead events are owed to a hook. `notes`: its progress is noted from time to time.
    """

    def __init__(
        self, owned: OwnedPartition, now: float, *, window: int, dead_letters: bool, notes: bool = False
    ) -> None:
        self.number = owned.partition
        self.window = window
        self._dead_letters = dead_letters
        self._lanes: dict[Key, Lane] = {}
        self.shared_lane = SharedLane(self)
        self.running = 0  # lanes whose handler runs now, and a call of the dead-letter hook
        self.predecessor: Partition | None = None  # itself in an earlier ownership, with handlers that still ran then
        self.suspects = Suspects()
        self.resumption = Resumption()
        self.incarnation = 1  # how often it has been read anew, in this ownership
        self.last_save = LastSave(now, owned.last_id, LastNote.of(now) if notes else LastNote(inf))
        self.begin(owned, now)

    def begin(self, owned: OwnedPartition, now: float) -> None:
        """Start reading from the saved cursor; nothing is known of parked rows yet."""
        self._enter(Phase.LOADING)
        self.epoch = owned.epoch
        self.in_transaction = False  # a transactional handler runs in it, whose transaction will save it
        saved = Page(owned.snapshot, owned.floor_id)
        self.cursor = Cursor(self.number, owned.last_id, saved)
        self.progress = Progress(saved, owned.last_id)
        self.last_save = self.last_save.restart(now, owned.last_id)
        self.payload_bytes = PayloadBytes()
        self.max_records: int | None = None  # so many new records are asked for: of more there were too many bytes
        self.suspects.begin(owned.suspect_until, self.window)
        self.parked = ParkedRows(
            self.number, self.progress, self.payload_bytes, self.suspects, dead_letters=self._dead_letters
        )

    # The phase.

    def loaded(self, version: int) -> None:
        """Its parked rows are known, as of this version."""
        self.parked.version = version
        if self.phase is Phase.LOADING:
            self._enter(Phase.RUNNING)

    def drain(self) -> None:
        """To be released: start nothing new."""
        self._enter(Phase.DRAINING)

    def reset(self, now: float) -> None:
        """Forget what was read, for the connection was lost; remember what is done or runs (⛨ DESIGN 4, EVIDENCE A9).

        A drain begins anew, once that is found again. Without the lock a runner looks at a lane's queue first, and then
        at the incarnation: so the incarnation changes first, and whoever sees the new queue sees the new incarnation.
        """
        self.incarnation += 1
        done = self.shared_lane.done[self.shared_lane.remembered_count :]  # its runner may add to it meanwhile
        self.shared_lane.remembered_count += len(done)
        self.resumption.remembered.update(map(_identity, done))  # it comes again before the line's turn ends, perhaps
        self.resumption.reset(self.progress, self.parked, self.cursor.last_id, now)
        self.suspects.note_reread()
        for lane in (self.shared_lane, *self._lanes.values()):
            old, lane.queue = lane.queue, deque()
            old.clear()
        self._lanes = {lane.key: lane for lane in self._lanes.values() if lane.running}

    def lose(self) -> None:
        """No longer mine: start nothing, save nothing."""
        self._enter(Phase.LOST)
        self.payload_bytes = PayloadBytes()
        for lane in (self.shared_lane, *self._lanes.values()):
            lane.queue.clear()

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.is_stopping = phase in (Phase.DRAINING, Phase.LOST)  # no handler starts; runners ask before each event

    @property
    def tenure(self) -> Tenure:
        """The ownership that this object is of."""
        return Tenure(self.number, self.epoch)

    @property
    def draining(self) -> bool:
        """True if it is to be released."""
        return self.phase is Phase.DRAINING

    @property
    def lost(self) -> bool:
        """True if it is not mine any more."""
        return self.phase is Phase.LOST

    @property
    def is_busy(self) -> bool:
        """A handler of it runs, of this ownership or of an earlier one."""
        return self.running > 0 or self.has_running_predecessor

    @property
    def has_running_predecessor(self) -> bool:
        """Its earlier self still runs handlers: until they end nothing of it may be read."""
        return self.predecessor is not None and self.predecessor.is_busy

    def may_begin(self) -> bool:
        """True once its parked rows are known, and its earlier self runs no handler any more."""
        return self.phase is not Phase.LOADING and (self.predecessor is None or not self.predecessor.is_busy)

    def may_drain(self, now: float) -> bool:
        """True if what was done or ran when a connection was lost is read again, or it was never lost.

        So a release can save what became of it (DESIGN 5). The next owner would repeat it otherwise, though neither a
        lease nor a process was lost.
        """
        cursor = self.cursor
        read_to = cursor.last_id if cursor.full else float("inf")
        whole = None if cursor.fresh or cursor.cut is not None else read_to
        return self.resumption.is_over(self.parked, whole, now)

    # Lanes.

    @property
    def lanes(self) -> dict[Key, Lane]:
        """The lanes that have events waiting or running, by key. Asking for them ends the line."""
        self.split_shared_lane()
        return self._lanes

    def split_shared_lane(self) -> None:
        """Sort what waits in the line into lanes. What comes gets a lane too until the turn of the line has ended: what
        it runs may take long, and its runner may be about to take what is at the head."""
        shared_lane = self.shared_lane
        shared_lane.is_split, rest = shared_lane.running, shared_lane.take_rest()
        shared_lane.has_unreported_lanes |= bool(rest)
        for event in map(shared_lane.event, rest):
            key = key_of(event)
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = Lane(self, key)
            lane.queue.append(event)

    @property
    def may_share_lane(self) -> bool:
        """True if new events may join the line: no lane has anything that they could overtake."""
        return not self._lanes and not self.shared_lane.is_split

    def lane(self, key: Key) -> Lane:
        found = self.lanes.get(key)
        if found is None:
            found = self._lanes[key] = Lane(self, key)
        return found

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane that has nothing any more."""
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def take_split_lanes(self) -> list[Lane]:
        """The lanes that were sorted out of the line and may run now; those with nothing go."""
        self.shared_lane.has_unreported_lanes = False
        if not self._lanes:
            return []
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.queue or lane.is_active}
        return [lane for lane in self._lanes.values() if not lane.is_active and not self.shared_lane.runs_key(lane.key)]

    def count_lanes(self) -> int:
        """The number of lanes, the line counted as one."""
        return len(self._lanes) + (self.shared_lane.is_active or bool(self.shared_lane.queue))

    # What was read and what became of it.

    def finish(self, rows: list[Row]) -> None:
        """Note that these records are done."""
        ids = [*map(_id, rows)]
        self.progress.finish(ids, [*map(_event_id, rows)])
        if self.payload_bytes.sizes:
            self.payload_bytes.drop(ids)

    def raise_max_records(self) -> None:
        """Ask for a few more records next time: those of the last page had not too many bytes."""
        assert self.max_records is not None
        self.max_records += self.max_records // 4 + 1
        if self.max_records >= self.window:
            self.max_records = None

    def saved(self, target: SaveTarget, finished: int, now: float, *, noted: bool = False) -> None:
        """A save of this target is committed, which was made when so many records had been finished."""
        self.progress.saved(target)
        self.last_save = LastSave(
            now, target.last_id, LastNote.of(now, finished) if noted else self.last_save.note, finished
        )
        self.resumption.saved(target.page, target.last_id, self.parked)
        free_empty_tables(self._lanes, self.payload_bytes.sizes)

    def note(self, finished: int, now: float, *, release: bool) -> ProgressNote | None:
        """The note of a save; None if nothing was finished since the last one, or it is too early and not let go."""
        if not self.last_save.note.is_over(finished, now, release=release):
            return None
        return ProgressNote(self.number, max(self.progress.read_id(), self.resumption.read_to))

    # Leaving.

    def waiting(self) -> dict[int, DeliveredEvent]:
        """Every event that was read from the log and has not been started, by id."""
        return {event.id: event for lane in self.lanes.values() for event in list(lane.queue) if event.parked is None}

    def charged(self) -> list[DeliveredEvent]:
        """The charged events that are not going to be started, once it is stopping."""
        events = (event for lane in self.lanes.values() if not lane.running for event in lane.queue)
        return [event for event in events if event.parked is not None and event.parked.charged]

    def settle_remembered(self) -> None:
        """Settle what was done before a lost connection, and waits for its lane's turn to be found so."""
        if not self.resumption.remembered:
            return
        for event in [event for lane in self.lanes.values() for event in list(lane.queue)]:
            if event.identity in self.resumption.remembered:
                self.settle_done(event)

    def settle_done(self, event: DeliveredEvent) -> None:
        """An event is done, parked or not."""
        if ignored := getattr(event, "ignored", None):
            self.parked.ignored.append(ignored)
        if event.parked is not None:
            self.parked.done(event)
        else:
            self.finish([event.record])
