"""A partition that this process owns, as held in memory, and its lanes, which refer to each other.

All attributes and methods need the engine's lock, with three exceptions. `cursor` belongs to the poller. `phase`,
`is_stopping`, `incarnation` and `resumption.remembered` may be read without the lock. The runner of a lane calls
`begin`, `rest`, `note_done` and `take_first` without the lock."""

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
# Seconds. A handler that has run for longer delays the release of its partition to another process.
LONG_RUN = 0.1

_id, _event_id, _identity = itemgetter(ID), itemgetter(EVENT_ID), itemgetter(IDENTITY)


class Lane:
    """A queue of the waiting events of one key, in id order, of which one runs at a time."""

    # The key is an aggregate. An event without an aggregate id has a lane to itself, with the key (None, id).

    __slots__ = (
        "claim",
        "current_event",
        "done_rows",
        "ended_event",
        "head",
        "incarnation",
        "is_active",
        "is_running",
        "key",
        "parked_running",
        "partition",
        "queue",
        "remembered_count",
        "started_at"
    )  # fmt: skip

    # Set when the lane begins to run: the incarnation of the partition that `done_rows` belongs to.
    incarnation: int
    # Monotonic seconds, set when the lane begins to run and again for each `current_event` event.
    started_at: float
    # Shared lane only: the row that its runner took last or is about to take, None while the lane does not run.
    head: Row | None
    # The `current_event` event once its outcome is settled. The event stays `current_event` until the next one begins.
    # The slot is unset before the first settlement, which most lanes never need.
    ended_event: DeliveredEvent | None

    def __init__(self, partition: "Partition", key: Key) -> None:
        self.partition = partition
        self.key = key
        self.queue: deque[Any] = deque()
        # If set, the queue holds rows, and `claim` makes an event of each row that runs.
        self.claim: ClaimContext | None = None
        # Rows of events that are done and not recorded yet. The first `remembered_count` rows are in
        # `resumption.remembered` already.
        self.done_rows: list[Row] = []
        self.remembered_count = 0
        # True from when the lane is ready to run until it is empty.
        self.is_active = False
        # True while a runner has the lane.
        self.is_running = False
        self.current_event: DeliveredEvent | None = None
        # The event that was parked while its handler went on running.
        self.parked_running: DeliveredEvent | None = None

    def build_event(self, waiting: Any) -> DeliveredEvent:
        # The item may be a bare row, of which the event is made.
        return waiting if self.claim is None else DeliveredEvent(waiting, self.claim)

    def has_ended(self, event: DeliveredEvent) -> bool:
        """Return True if the result of `event`, the current event of this queue, was recorded already."""
        return getattr(self, "ended_event", None) is event

    def begin_event(self, event: DeliveredEvent, now: float) -> None:
        """Record that the handler of this event starts at `now` (monotonic seconds)."""
        self.started_at, self.current_event = now, event

    def clear_current(self) -> None:
        """Record that no handler runs for this queue now."""
        # The handler of the lane's event has ended.
        self.current_event = None

    def note_done(self, event: DeliveredEvent) -> None:
        """Record that the handler has finished this event."""
        # The event need not be set aside (parked) then.
        self.done_rows.append(event.record)

    def take_first(self) -> DeliveredEvent:
        """Remove and return the first event. Raise IndexError if another thread has emptied the queue."""
        # The runner of the lane calls this.
        if self.claim is None:
            return self.queue.popleft()  # type: ignore[no-any-return]
        # Set `head` before the row leaves the queue: a thread that splits the lane at this moment must see which key
        # runs.
        self.head = self.queue[0]
        return DeliveredEvent(self.queue.popleft(), self.claim)

    def take_rest(self) -> list[Any]:
        """Remove and return all waiting events, in order. This is safe while a runner takes events too."""
        # The runner may take events from the left at the same time, without the lock. This method takes from the right,
        # so it gets the last events, and the events before them run.
        taken: list[Any] = []
        while self.queue:
            try:
                taken.append(self.queue.pop())
            except IndexError:
                # The runner has taken the last event.
                break
        return taken[::-1]

    def park_waiting(self) -> None:
        """Move all waiting events to database rows, because an earlier event of the same key blocks them."""
        # Each parked event has a row of its own.
        for event in self.take_rest():
            self.partition.parked.park_behind(event)

    def would_overtake(self, event: DeliveredEvent) -> bool:
        """Return True if this event would run before an event of the same key with a lower id."""
        # The event is the first of the lane.
        # That would be against the order of the events.
        chain = self.partition.parked.chains.get(self.key)
        if chain is None:
            return False
        id = event.id
        return any(not row.is_loaded for row in chain.iter_before(id)) or any(each.id < id for each in self.queue)

    def find_lane_behind(self, event: DeliveredEvent) -> "Lane":
        """Return the queue in which later events with the key of `event` wait."""
        # For a lane of one key it is the lane itself.
        return self


# New events of which nothing else is known wait in one queue, because lanes by key cost more. A queue in id order keeps
# the order of every key. The queue is split into lanes by key when a caller asks for a lane, or when runners have
# nothing else to run (`LaneScheduler.split_blocking_lanes`). After a split no event joins the shared lane until its
# turn has ended. The new lanes may run then, or as soon as a runner is free, except lanes of keys that the shared lane
# is running.
#
# The queue holds rows. The runner makes each event just before the handler call: the event is then still in the
# processor's cache, and its memory serves the next event. The runner sets `head` without the lock before it takes that
# row, so a thread that has taken the rest of the queue knows which key runs.
class SharedLane(Lane):
    """A queue for the new events of all keys of a partition, in id order."""

    # It costs less than a lane for each key. None of the events is parked.

    __slots__ = ("_keys", "has_unreported_lanes", "in_hand", "is_split", "types")

    def __init__(self, partition: "Partition") -> None:
        super().__init__(partition, (None, 0))
        # `is_split` is true if the lane was split in this turn, and `has_unreported_lanes` while no scheduler knows the
        # lanes of the split. `in_hand` is the list of events that the runner handles in one call.
        self.types = SharedLaneTypes()
        self.end_turn()

    def end_turn(self) -> None:
        """Drop all references to the events of this queue after its runner has finished with it."""
        self.head, self.is_split, self.has_unreported_lanes, self.ended_event = None, False, False, None
        self.set_in_hand(())

    def set_in_hand(self, events: Sequence[DeliveredEvent]) -> None:
        """Set the events that the runner handles in one call, so that other threads can see which keys run."""
        self.in_hand, self._keys = events, NO_KEYS

    def runs_key(self, key: Key) -> bool:
        """Return True if an event of this key may be running just now."""
        # The runner of this shared lane handles the event.
        if not self.in_hand:
            return self.head is not None and key_of(self.build_event(self.head)) == key
        # Computed at most once for each list, and only if a caller asks.
        self._keys = self._keys or frozenset(map(key_of, self.in_hand))
        return key in self._keys

    def find_lane_behind(self, event: DeliveredEvent) -> Lane:
        """Split this queue by key, and return the queue of later events with the key of `event`."""
        return self.partition.ensure_lane(key_of(event))


class Tenure(NamedTuple):
    """One period in which this worker process owns a partition."""

    # No two tenures have the same epoch, so a message about one cannot mean another.

    number: int
    epoch: int


# It has many attributes, because one lock guards all that the threads of a process share about a partition.
class Partition:
    """The in-memory state of one partition of the event log that this worker process owns.

    `window` is the most new records that may be read and not saved. With `dead_letters`, dead events must reach a hook.
    With `notes`, progress notes are saved from time to time."""

    def __init__(
        self,
        owned: OwnedPartition,
        now: float,
        *,
        window: int,
        dead_letters: bool,
        spill_after: int = 1 << 40,
        notes: bool = False,
    ) -> None:
        self.number = owned.partition
        self.window = window
        self._dead_letters = dead_letters
        self._spill_after = spill_after
        self._lanes: dict[Key, Lane] = {}
        self.shared_lane = SharedLane(self)
        # The number of running lanes, plus a call of the dead-letter hook.
        self.running_count = 0
        # Since when the partition is assigned to another process, in monotonic seconds, or None.
        self.reassigned_at: float | None = None
        # The object of an earlier tenure in this process, if its handlers still ran when this tenure began.
        self.predecessor: Partition | None = None
        self.suspects = Suspects()
        self.resumption = Resumption()
        # Counts how often this tenure was read from its saved cursor. Outcomes of an older incarnation do not count.
        self.incarnation = 1
        self.last_save = LastSave(now, owned.last_id, LastNote.from_time(now) if notes else LastNote(inf))
        self.begin_reading(owned, now)

    def begin_reading(self, owned: OwnedPartition, now: float) -> None:
        """Start to read the partition from its saved position."""
        # Its parked rows are unknown until `finish_loading` is called.
        self._enter_phase(Phase.LOADING)
        self.epoch = owned.epoch
        # True while a transactional handler runs, whose transaction will save the partition.
        self.in_transaction = False
        saved = Page(owned.snapshot, owned.floor_id)
        self.cursor = Cursor(self.number, owned.last_id, saved)
        self.progress = Progress(saved, owned.last_id)
        self.last_save = self.last_save.restart(now, owned.last_id)
        self.payload_bytes = PayloadBytes()
        # The most new records to ask for, or None. Set after a page whose payloads had too many bytes.
        self.max_records: int | None = None
        self.suspects.set_range(owned.suspect_until, self.window)
        self.parked = ParkedRows(
            self.number,
            self.progress,
            self.payload_bytes,
            self.suspects,
            self._spill_after,
            dead_letters=self._dead_letters,
        )

    def finish_loading(self, version: int) -> None:
        """Record that the failed or waiting events are loaded, so that events of the partition may run."""
        # The rows are as of this version. The loading phase ends.
        self.parked.version = version
        if self.phase is Phase.LOADING:
            self._enter_phase(Phase.RUNNING)

    def drain(self) -> None:
        """Stop starting handlers in this partition, to release it when the running handlers have ended."""
        self._enter_phase(Phase.DRAINING)

    def reset(self, now: float) -> None:
        """Forget all events that were read, to read them again after a lost connection."""
        # Handled and running events do not run again.
        # Events that are done or running are remembered, so that no handler runs for them again. A drain starts over
        # once they have been read again. Running lanes stay, with an empty queue. A runner without the lock reads the
        # queue of a lane first, and then the incarnation. The incarnation changes first here, so a runner that sees the
        # new queue also sees the new incarnation.
        self.incarnation += 1
        # The runner may append to `done` meanwhile. The records are remembered now, because they may be read again
        # before the turn of the shared lane ends.
        done = self.shared_lane.done_rows[self.shared_lane.remembered_count :]
        self.shared_lane.remembered_count += len(done)
        self.resumption.remembered.update(map(_identity, done))
        self.resumption.remember_done(self.progress, self.parked, self.cursor.last_id, now)
        self.suspects.note_reread()
        for lane in (self.shared_lane, *self._lanes.values()):
            old, lane.queue = lane.queue, deque()
            old.clear()
        self._lanes = {lane.key: lane for lane in self._lanes.values() if lane.is_running}

    def lose(self) -> None:
        """Stop all work on a partition that this process no longer owns, and drop its waiting events."""
        # Nothing more of it is started or saved.
        self._enter_phase(Phase.LOST)
        self.payload_bytes = PayloadBytes()
        for lane in (self.shared_lane, *self._lanes.values()):
            lane.queue.clear()

    def _enter_phase(self, phase: Phase) -> None:
        self.phase = phase
        # No handler starts while this is true. Runners check the flag before each event.
        self.is_stopping = phase in (Phase.DRAINING, Phase.LOST)

    @property
    def tenure(self) -> Tenure:
        return Tenure(self.number, self.epoch)

    @property
    def is_draining(self) -> bool:
        """True if the partition starts no more handlers, because it is going to be released."""
        return self.phase is Phase.DRAINING

    @property
    def is_lost(self) -> bool:
        """True if this process does not own the partition any more."""
        # Nothing of it may be started or saved here.
        return self.phase is Phase.LOST

    @property
    def is_busy(self) -> bool:
        """True if a handler of the partition runs, from this ownership by the process or from an earlier one."""
        return self.running_count > 0 or self.has_running_predecessor

    @property
    def has_running_predecessor(self) -> bool:
        """True if handlers from an earlier ownership of this partition by the process still run."""
        # Events of their keys wait until they have ended.
        return self.predecessor is not None and self.predecessor.is_busy

    def may_begin(self, key: Key) -> bool:
        """Return True if a handler of this key may start now."""
        # The parked rows must be known, and no handler of an earlier ownership may run an event of the key.
        return self.phase is not Phase.LOADING and not self.runs_before(key)

    def runs_before(self, key: Key) -> bool:
        """Return True if an event of this key still runs since an earlier ownership of the partition."""
        before = self.predecessor
        return before is not None and (before.runs_key(key) or before.runs_before(key))

    def runs_key(self, key: Key) -> bool:
        """Return True if an event of this key may be running just now, since this ownership."""
        lane = self._lanes.get(key)
        return self.shared_lane.runs_key(key) or (lane is not None and lane.is_running)

    def may_drain(self, now: float) -> bool:
        """Return True if the partition may stop starting handlers now, to be released."""
        # `now` is in monotonic seconds. After a lost connection, draining waits until all remembered events are read
        # again, so that a release can save their outcomes. Otherwise the next owner would repeat them,
        # although no lease and no process was lost.
        cursor = self.cursor
        read_to = cursor.last_id if cursor.may_have_backlog else float("inf")
        whole = None if cursor.is_fresh or cursor.cut_page is not None else read_to
        return self.resumption.is_recheck_over(self.parked, whole, now)

    def is_held_by_handler(self, now: float) -> bool:
        """Return True if a handler runs that had run for long when the partition was assigned to another process."""
        # Such a handler may hang. If the partition began to drain, all its other keys would wait for that handler, so
        # they go on here until the handler has ended. Events that started later do not count: where every handler
        # takes long, some handler runs at all times.
        before = now if self.reassigned_at is None else self.reassigned_at
        return self.running_count > 0 and any(
            lane.is_running and lane.started_at < min(before, now - LONG_RUN)
            for lane in (self.shared_lane, *self._lanes.values())
        )

    @property
    def lanes(self) -> dict[Key, Lane]:
        """The queues of waiting or running events, by key."""
        # Access splits the shared lane.
        self.split_shared_lane()
        return self._lanes

    def split_shared_lane(self) -> None:
        """Split the queue of all keys into one queue per key, so that different keys run side by side."""
        # The waiting events move from the shared lane into one lane for each key.
        shared_lane = self.shared_lane
        # While the shared lane runs, new events get lanes by key too. The running handler may take long, and the runner
        # may be about to take the first row.
        shared_lane.is_split, rest = shared_lane.is_running, shared_lane.take_rest()
        shared_lane.has_unreported_lanes |= bool(rest)
        for event in map(shared_lane.build_event, rest):
            key = key_of(event)
            lane = self._lanes.get(key)
            if lane is None:
                lane = self._lanes[key] = Lane(self, key)
            lane.queue.append(event)

    @property
    def may_share_lane(self) -> bool:
        """True if new events may join the one queue that all keys of the partition share."""
        # There must be no lane by key that they could overtake.
        return not self._lanes and not self.shared_lane.is_split

    def ensure_lane(self, key: Key) -> Lane:
        """Return the queue of the events of this key, and create it if there is none."""
        found = self.lanes.get(key)
        if found is None:
            found = self._lanes[key] = Lane(self, key)
        return found

    def drop_lane(self, lane: Lane) -> None:
        """Remove an empty queue from the partition, unless another queue of the same key has replaced it."""
        if self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]

    def take_split_lanes(self) -> list[Lane]:
        """Return the queues by key that may run after the shared queue was split."""
        # Empty lanes are forgotten.
        self.shared_lane.has_unreported_lanes = False
        if not self._lanes:
            return []
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.queue or lane.is_active}
        # A lane whose key runs in the shared lane has to wait until that turn has ended.
        return [lane for lane in self._lanes.values() if not lane.is_active and not self.shared_lane.runs_key(lane.key)]

    def count_lanes(self) -> int:
        """Return the number of event queues that have events."""
        # The shared lane, a queue for all keys, counts as one.
        return len(self._lanes) + (self.shared_lane.is_active or bool(self.shared_lane.queue))

    def finish_rows(self, rows: list[Row]) -> None:
        """Record that these records are done, so that the saved position can pass them."""
        # The bytes of their payloads are released.
        ids = [*map(_id, rows)]
        self.progress.finish(ids, [*map(_event_id, rows)])
        if self.payload_bytes.sizes:
            self.payload_bytes.drop(ids)

    def raise_max_records(self) -> None:
        """Raise the maximum number of records in this partition's next page by a quarter."""
        # The last page had few enough bytes.
        assert self.max_records is not None
        self.max_records += self.max_records // 4 + 1
        if self.max_records >= self.window:
            self.max_records = None

    def note_saved(self, target: SaveTarget, finished: int, now: float, *, noted: bool = False) -> None:
        """Record that a save of this partition's position is committed."""
        # `target` is the cursor of the save. When it was gathered, `finished` records had been finished.
        # `noted` is true if the save had a progress note.
        self.progress.note_saved(target)
        self.last_save = LastSave(
            now, target.last_id, LastNote.from_time(now, finished) if noted else self.last_save.note, finished
        )
        self.resumption.note_saved(target.page, target.last_id, self.parked)
        free_empty_tables(self._lanes, self.payload_bytes.sizes)

    def build_note(self, finished: int, now: float, *, release: bool) -> ProgressNote | None:
        """Return the row that records how far the partition was read, to be saved with its position, or None if not
        due."""
        # The row is a progress note.
        # The note records how far the partition was read. There is none either if there is nothing new to note.
        # A note is always due with a release.
        if not self.last_save.note.needs_next_note(finished, now, release=release):
            return None
        return ProgressNote(self.number, max(self.progress.find_highest_read(), self.resumption.read_to))

    def collect_waiting(self) -> dict[int, DeliveredEvent]:
        """Return all events of the partition that were read and have not started, by record id."""
        return {event.id: event for lane in self.lanes.values() for event in list(lane.queue) if event.parked is None}

    def list_unstarted_charges(self) -> list[DeliveredEvent]:
        """Return the events that will not start, although their next attempt is already counted in the database."""
        # Such an attempt is charged (saved before the run). The partition must be stopping.
        events = (event for lane in self.lanes.values() if not lane.is_running for event in lane.queue)
        return [event for event in events if event.parked is not None and event.parked.is_charged]

    def settle_remembered(self) -> None:
        """Record waiting events as done if they had been handled before a lost connection."""
        # Such events do not run again.
        if not self.resumption.remembered:
            return
        for event in [event for lane in self.lanes.values() for event in list(lane.queue)]:
            if event.identity in self.resumption.remembered:
                self.settle_done(event)

    def settle_done(self, event: DeliveredEvent) -> None:
        # The saved cursor may then pass a new event. The row of a parked event is deleted.
        if ignored := getattr(event, "ignored", None):
            self.parked.ignored_events.append(ignored)
        if event.parked is not None:
            self.parked.note_done(event)
        else:
            self.finish_rows([event.record])
