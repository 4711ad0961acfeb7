"""The choice of the parked rows that run next. Rows are selected here, the poller fetches their events, and then the
events are queued here or the rows are put back. Other threads go on meanwhile, so the last step checks again."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from partbox.events import ClaimContext, DeliveredEvent
from partbox.events.record import AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, Row, count_row_bytes
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.rows import CursorSave, ParkedSave, Refill, RefilledKey, RefillKey, StoredRow
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.dead_letters import DeadLetter, DeadLetterQueue
from partbox.worker.engine.key import Key, key_of, make_key
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.read_budget import EVENT_OVERHEAD, ReadBudget
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState


class RefillRequest(NamedTuple):
    """A refill of spilled keys of one partition."""

    partition: Partition
    refill: Refill


class WokenKey(NamedTuple):
    """The failed or waiting events of one key that may run now."""

    # `rows` are the first parked rows of the key, which count as loaded.

    partition: Partition
    key: Key
    rows: list[ParkedRow]


class DueRow(NamedTuple):
    """A failed or waiting event whose time to run has come and that blocks no other event."""

    # It has its database row and its in-memory row.

    partition: Partition
    stored: StoredRow
    row: ParkedRow


class DueQuery(NamedTuple):
    """The parameters of a query for failed or waiting events whose time to run has come."""

    # `ids_in_memory` are ids in memory, `early_ids` ids that may be fetched before they are due, `free_bytes` the bytes
    # free for events, of which `fitting` fit, and `in_line_count` the parked events in memory that wait for a permit.

    partitions: dict[int, Partition]
    ids_in_memory: list[int]
    free_bytes: int
    fitting: int
    early_ids: list[int]
    in_line_count: int


class SuspectRow(NamedTuple):
    """The database row of an event that may have killed a process, with its partition."""

    # The event is parked. Its attempt is saved (charged) before it runs.

    partition: Partition
    row: ParkedRow


class Charge(NamedTuple):
    """The arguments of a save that counts an attempt of some events before they run, in case they kill the process."""

    # The save is fenced by the owner's epoch, and moves no cursor.

    cursors: list[CursorSave]
    parks: list[ParkedSave]


BuriedEvent = tuple[DeliveredEvent, Verdict]
"""A dead event with its verdict, to be reported."""


class ParkedScheduler:
    """The part of the engine that chooses which failed or waiting (parked) events run next.

    It chooses in all partitions of a worker process. Only the poller's thread uses this class."""

    def __init__(
        self,
        state: EngineState,
        scheduler: LaneScheduler,
        dead_letters: DeadLetterQueue,
        budget: ReadBudget,
        claim: ClaimContext,
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._scheduler = scheduler
        self._dead_letters = dead_letters
        self._budget = budget
        # All partitions share these parts of the claim context.
        self._claim_parts = claim[1:]

    # The next wake-up and the waiting suspects belong to one moment.
    @under_lock
    def has_work(self, now: float) -> bool:
        """Return True if some failed or waiting events may have to be loaded now."""
        # A key is due, or a suspect row that blocks nothing waits.
        at = self._state.find_next_wakeup()
        return bool(self._state.charges.keyless_partitions) or (at is not None and at <= now)

    # The lock guards the wake-ups.
    @under_lock
    def find_next_due(self) -> float | None:
        """Return the time (monotonic seconds) at which the next failed or waiting events may run, or None."""
        # None means that no key has parked events, or that there is no memory for them.
        return None if self._budget.is_starved else self._state.find_next_wakeup()

    # Trials end with saves and with handlers.
    @under_lock
    def wake_trials(self, now: float) -> None:
        """Schedule the events that may have killed a process and whose turn to run has come."""
        # The events are parked.
        # An attempt is saved for each of these suspects before it runs (it is charged).
        self._state.charges.advance_clock(now)
        self._state.wake_next_trials()

    # Each trial is taken once.
    @under_lock
    def take_keyless(self) -> Collection[int]:
        """Return the numbers of partitions to query for failed or waiting events that block no other events."""
        # There are suspects that may run now, and rows that may be fetched before they are due.
        early, self._state.early_partitions = self._state.early_partitions, set()
        return early | self._state.charges.take_keyless() if self._state.charges.keyless_partitions else early

    # Other threads park and save events, which changes the heads.
    @under_lock
    def take_due_keys(self, now: float, most: int) -> tuple[list[WokenKey], int]:
        """Return at most `most` keys whose failed or waiting events may run now, and the free memory in bytes."""
        # Each key comes with its first rows that may run. Its chain of rows is in memory, so this takes no
        # statement.
        # A suspect first event that may not be charged yet waits for its trial. Each key must be passed to
        # `queue_woken` or `put_back`.
        at = self._state.find_next_wakeup()
        if at is None or at > now:
            return [], 0
        self._state.charges.advance_clock(now)
        left = self._budget.count_free_bytes(self._state.partitions.values())
        return (self._take_woken(now, min(most, self._budget.count_fitting(left))) if left > 0 else []), left

    def _take_woken(self, now: float, most: int) -> list[WokenKey]:
        found: list[WokenKey] = []
        while len(found) < most and (waking := self._state.pop_wakeup(now)) is not None:
            partition, key = waking
            chain = partition.parked.chains[key]
            if chain.needs_refill():
                self._state.refills.setdefault(partition, {})[key] = None
            rows = list(takewhile(partition.parked.has_reached, chain.list_runnable(now)))
            if rows and rows[0].is_suspect and not self._state.charges.admit_suspect(partition, key, rows[0]):
                continue
            for row in rows:
                row.mark_loaded()
            if rows:
                found.append(WokenKey(partition, key, rows))
            elif (at := chain.wakes_at()) is not None and at > now:
                self._state.schedule_wakeup(partition, key)
        return found

    # Saves change what may be refilled.
    @under_lock
    def take_refills(self, wanted_types: frozenset[str] | None) -> list[RefillRequest]:
        """Return the refills of spilled keys that are needed now, one for each partition."""
        # Each must be passed to `note_refilled` or `put_back_refills`.
        refills, self._state.refills = self._state.refills, {}
        requests = (
            RefillRequest(partition, self._build_refill(partition, keys, wanted_types))
            for partition, keys in refills.items()
            if not partition.is_stopping
        )
        return [each for each in requests if each.refill.keys]

    # New rows and the ids from which the key has none belong to one moment.
    @under_lock
    def note_refilled(self, request: RefillRequest, refilled: Sequence[RefilledKey]) -> None:
        """Add the rows that a refill has inserted, and let the events of their keys run."""
        partition = request.partition
        if partition.epoch == request.refill.epoch and not partition.is_lost:
            for each in refilled:
                self._state.schedule_wakeup(partition, partition.parked.note_refilled(each))

    # The lock guards the refills that are needed.
    @under_lock
    def put_back_refills(self, requests: Iterable[RefillRequest]) -> None:
        """Let refills that were not done be needed again."""
        for partition, refill in requests:
            for each in refill.keys:
                self._state.schedule_wakeup(partition, (each.aggregate_type, each.aggregate_id))

    def _build_refill(self, partition: Partition, keys: Iterable[Key], wanted: frozenset[str] | None) -> Refill:
        wants = [
            RefillKey(key[0], key[1], max(1, spill.size - chain.count_before_spill()), spill.may_end())
            for key in keys
            if (chain := partition.parked.spills.chains.get(key)) is not None
            and (spill := chain.spill) is not None
            and key[0] is not None
        ]
        return Refill(partition.number, partition.epoch, partition.progress.last_id_for_good, wants, wanted)

    # A key has no wake-up while its rows are loaded, and other threads must see both or neither.
    @under_lock
    def drop_left_out(self, woken: Sequence[WokenKey], left_out: Collection[int]) -> list[WokenKey]:
        """Remove events that could not be fetched, and the later events of their keys. Return the remaining rows."""
        # The rows of each key are put back from the first in `left_out` on.
        kept = []
        for partition, key, rows in woken:
            complete = list(takewhile(lambda row: row.id not in left_out, rows))
            if len(complete) < len(rows):
                self._state.put_back_rows(partition, key, rows[len(complete) :])
            if complete:
                kept.append(WokenKey(partition, key, complete))
        return kept

    # A key has no wake-up while its rows are loaded, and other threads must see both or neither.
    @under_lock
    def put_back(self, woken: Iterable[WokenKey]) -> None:
        """Let the events of keys from `take_due_keys` wait again, because the events could not be fetched."""
        # The events are parked.
        # The keys wake again.
        for each in woken:
            self._state.put_back_rows(*each)

    # A row must be in its lane before another thread asks whether its key is caught up.
    @under_lock
    def queue_woken(
        self, woken: Iterable[WokenKey], bodies: Mapping[int, Row], dead: Mapping[int, Verdict]
    ) -> list[BuriedEvent]:
        """Queue the fetched events of these keys for their handlers. Return the events that have no attempts left."""
        # The returned events are dead.
        # The keys were woken. A first event with a verdict in `dead` is parked as dead instead.
        buried, ready = list[BuriedEvent](), list[Lane]()
        for partition, key, rows in woken:
            if (verdict := dead.get(rows[0].id)) is not None:
                buried += self._bury(partition, rows[0], bodies[rows[0].id], verdict)
            else:
                self._queue_chain(partition, key, rows, bodies, ready)
        self._scheduler.make_ready(ready, due=True)
        return buried

    def _queue_chain(
        self, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: Mapping[int, Row], ready: list[Lane]
    ) -> None:
        """Queue the failed or waiting events of one key for their handlers, in order. The caller holds the lock."""
        # The rows block their key.
        # An event of the key may have failed or been put back since, so newer events in memory are parked first.
        chain, lane = partition.parked.chains.get(key), partition.lanes.get(key)
        if chain is not None:
            if lane is not None and any(each.id > rows[0].id for each in list(lane.queue)):
                lane.park_waiting()
                self._state.mark_dirty(partition)
            in_line = chain.select_in_line(rows)
            if len(in_line) < len(rows):
                self._state.put_back_rows(partition, key, list(rows[len(in_line) :]))
            rows = in_line
        if rows and not partition.is_stopping:
            self._queue_rows(partition, key, rows, bodies, ready)

    # The rows in memory and the rows that a save deletes belong to one moment.
    @under_lock
    def build_due_query(self, numbers: Iterable[int], most: int) -> DueQuery:
        """Return the parameters of a query for failed or waiting events whose time to run has come."""
        # A row that blocks nothing is only in the database, so it is found by a query.
        # The query is for parked rows that block nothing, in all of these partitions that run. At most `most` rows may
        # be fetched before they are due.
        owned = ((number, self._state.partitions.get(number)) for number in numbers)
        mine = {number: each for number, each in owned if each and each.phase is Phase.RUNNING}
        taken = [
            id
            for partition in mine.values()
            for id in (*partition.parked.loose_rows, *partition.parked.unsaved_deletions)
        ]
        left = self._budget.count_free_bytes(self._state.partitions.values()) if mine else 0
        # The partitions stay in the set until `admit_due` has seen their early rows.
        self._state.early_partitions.update(number for number, each in mine.items() if each.parked.early_ids)
        early = islice((id for partition in mine.values() for id in partition.parked.early_ids), most)
        in_line = 0 if self._scheduler.limited_queue is None else self._scheduler.limited_queue.count_keyless()
        return DueQuery(mine, taken, left, self._budget.count_fitting(left), [*early], in_line)

    # Each trial is given once.
    @under_lock
    def admit_due(
        self, asked: DueQuery, stored: Sequence[StoredRow], left_out: Collection[int], now: float
    ) -> tuple[list[DueRow], bool]:
        """Return the queried rows whose events may run now, and True if all of the events may run."""
        # The rows are from the query for due rows. A row that was parked and saved during the query is in memory
        # already, and is left out.
        self._state.charges.advance_clock(now)
        early_ids = set(asked.early_ids)
        for number, partition in asked.partitions.items():
            for id in asked.early_ids:
                partition.parked.early_ids.pop(id, None)
            if not partition.parked.early_ids:
                self._state.early_partitions.discard(number)
        found = [(asked.partitions[each.partition], each) for each in stored if each.record_id not in left_out]
        due = [
            DueRow(partition, each, partition.parked.build_due_row(each, now))
            for partition, each in found
            if each.record_id not in partition.parked.loose_rows
        ]
        # An accused row runs alone, so it is admitted first. Otherwise it would wait for all others.
        accused_first = sorted(due, key=lambda each: not each.row.is_accused)
        admitted_ids = {each.row.id for each in accused_first if self._admit(*each)}
        # Such a row may be due in a day only, so it is asked for again: when its record was read, when its trial may
        # begin, or when its payload may fit.
        for each in stored:
            if each.record_id in early_ids and each.record_id not in admitted_ids:
                asked.partitions[each.partition].parked.early_ids[each.record_id] = None
                if each.record_id in left_out:
                    self._state.early_partitions.add(each.partition)
        return [each for each in due if each.row.id in admitted_ids], len(admitted_ids) == len(due)

    # The lock guards the parked rows.
    @under_lock
    def return_suspects(self, suspects: Iterable[SuspectRow]) -> None:
        """Let events that may have killed a process wait again, because their attempt could not be saved."""
        # The rows are suspects whose attempt could not be saved. This ends their trial.
        for _, row in suspects:
            row.end_trial()

    # A row must be in its lane before another thread asks whether its key is caught up.
    @under_lock
    def queue_due(
        self, due: Iterable[DueRow], bodies: Mapping[int, Row], dead: Mapping[int, Verdict], read: Iterable[Partition]
    ) -> list[BuriedEvent]:
        """Queue events whose time to run has come for their handlers. Return the events that have no attempts left."""
        # The returned events are dead.
        # A parked row with a verdict in `dead` is parked as dead instead. The partitions in `read` have no other due
        # rows.
        buried, ready = list[BuriedEvent](), list[Lane]()
        for partition, stored, row in due:
            if (verdict := dead.get(row.id)) is not None:
                buried += self._bury(partition, row, bodies[row.id], verdict)
            elif not partition.is_stopping:
                self._queue_due(partition, stored, row, bodies, ready)
        self._scheduler.make_ready(ready, due=True)
        for partition in read:
            partition.parked.has_read_due = True
        return buried

    # Rows and epochs belong to one moment.
    @under_lock
    def build_charge(self, suspects: Sequence[SuspectRow], bodies: Mapping[int, Row]) -> Charge:
        """Return the save that counts an attempt of events that may have killed a process, before they run."""
        # The rows are suspects. The save is fenced. The attempt counts even if the process dies.
        numbers = {partition.number: partition.epoch for partition, _ in suspects}
        cursors = [CursorSave(number, epoch, None, None, None, False) for number, epoch in numbers.items()]
        return Charge(cursors, [_build_charge_row(partition, row, bodies[row.id]) for partition, row in suspects])

    # The lock guards the suspects, and the attempts of parked rows.
    @under_lock
    def note_charged(self, suspects: Iterable[SuspectRow]) -> None:
        """Record that the attempt of events that may have killed a process is saved, so that they may run."""
        # The attempt of each suspect row is committed.
        for partition, row in suspects:
            partition.suspects.note_charged(row)

    def _admit(self, partition: Partition, stored: StoredRow, row: ParkedRow) -> bool:
        # The record of the parked row must have been read, and a suspect row must have its turn to be charged.
        # A dead row goes to the hook, and does not run, so it is not charged.
        if row.state is RowState.DEAD:
            return True
        # A row whose record is still to be read waits for that. If it were done first, its row would be gone when the
        # next owner reads the record.
        key = make_key(stored.aggregate_type, stored.aggregate_id) if stored.aggregate_id else None
        if not partition.parked.has_reached(row) or partition.runs_before(key or (None, row.id)):
            return False
        if not row.is_suspect:
            return True
        chain = None if key is None else partition.parked.chains.get(key)
        # A row of a blocked key is held and does not run, so it is not charged.
        if chain is not None and not chain.is_caught_up():
            return True
        return self._state.charges.admit_suspect(partition, None, row)

    def _queue_due(
        self, partition: Partition, stored: StoredRow, row: ParkedRow, bodies: Mapping[int, Row], ready: list[Lane]
    ) -> None:
        # The row of the event blocks nothing. If its key is blocked, the event is parked behind the other events of the
        # key.
        partition.parked.loose_rows[row.id] = row
        if row.state is RowState.DEAD:
            self._queue_dead_letter(partition, stored, row, bodies.get(row.id))
            return
        key: Key = (
            (None, row.id) if stored.aggregate_id is None else make_key(stored.aggregate_type, stored.aggregate_id)
        )
        chain = partition.parked.chains.get(key)
        # Such a row was admitted uncharged because its key was blocked, and the key may be free by now.
        uncharged = row.is_suspect and not row.is_charged
        if row.id not in bodies or not (uncharged or (chain is not None and not chain.is_caught_up())):
            self._queue_rows(partition, key, [row], bodies, ready)
        else:
            partition.parked.park_behind(self.build_event(partition, bodies[row.id], row))
            self._state.mark_dirty(partition)

    def _bury(self, partition: Partition, row: ParkedRow, body: Row, verdict: Verdict) -> list[BuriedEvent]:
        # The event is dead without another attempt, and is returned with its verdict.
        # The event is parked as dead because a process died at each attempt before.
        if partition.is_stopping:
            return []
        event = self.build_event(partition, body, row)
        partition.parked.park(event, verdict)
        self._state.mark_dirty(partition)
        self._state.schedule_wakeup(partition, key_of(event))
        return [(event, verdict)]

    def _queue_dead_letter(self, partition: Partition, stored: StoredRow, row: ParkedRow, body: Row | None) -> None:
        if body is None:
            partition.parked.delete(row, b"")
            self._state.mark_dirty(partition)
            return
        event = DeliveredEvent(body, self._build_claim(partition), row.attempts, parked=row)
        partition.payload_bytes.add(row.id, EVENT_OVERHEAD + count_row_bytes(body))
        self._dead_letters.add(DeadLetter(partition, event, stored.error or ""))

    def _queue_rows(
        self, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: Mapping[int, Row], ready: list[Lane]
    ) -> None:
        # A lane that gets its first event is added to `ready`.
        lanes = partition.lanes
        lane = lanes.get(key) or Lane(partition, key)
        for row in rows:
            body = bodies.get(row.id)
            if body is None:
                partition.parked.delete_orphan(row, key)
                self._state.mark_dirty(partition)
            else:
                lane.queue.append(self.build_event(partition, body, row))
                partition.payload_bytes.add(row.id, EVENT_OVERHEAD + count_row_bytes(body))
        if not lane.queue:
            self._state.schedule_wakeup(partition, key)
        elif not lane.is_active:
            lanes[key] = lane
            lane.is_active = True
            ready.append(lane)

    def build_event(self, partition: Partition, body: Row, row: ParkedRow) -> DeliveredEvent:
        """Create the event to handle from its database row and its record. The caller holds the lock."""
        # The row is parked.
        # The event has the number of its next attempt.
        # If the row is charged, the charge has counted this attempt already.
        attempt = row.attempts + (not row.is_charged)
        return DeliveredEvent(body, self._build_claim(partition), attempt, parked=row)

    def _build_claim(self, partition: Partition) -> ClaimContext:
        return ClaimContext(partition.epoch, *self._claim_parts)


def _build_charge_row(partition: Partition, row: ParkedRow, body: Row) -> ParkedSave:
    return ParkedSave(
        partition.number,
        row.id,
        body[AGGREGATE_TYPE],
        body[AGGREGATE_ID],
        body[EVENT_TYPE],
        RowState.READY,
        blocks=row.blocks,
        attempts=row.attempts + 1,
        # A row that blocks nothing is found in the database by its due time.
        delay=None if row.blocks else 0.0,
        is_new=False,
        is_charge=True,
    )
