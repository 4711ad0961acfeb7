"""The turns of parked rows: which may run now, which suspects are charged first, and how they come into their lanes.

Two kinds of rows come back. The *head* of a blocked key wakes when it is due, and what may follow it comes with it; the
key's chain is in memory, so waking needs no statement. A row that *blocks nothing* is only in the database, which says
when one is due. Either way there are two halves: rows are taken here, their records are fetched by the driver, and then
they are queued here, or put back if that failed. Meanwhile everything else goes on, so the second half looks again.

A suspect of a process's death is charged between the halves, by the fenced save (see `poison`). Which row of a key may
run is the head rule of DESIGN 7.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from partbox.events import ClaimContext, DeliveredEvent
from partbox.events.record import AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, Row, row_bytes
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.rows import CursorSave, ParkedSave, StoredRow
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.dead_letters import DeadLetter, DeadLetterQueue
from partbox.worker.engine.key import Key, key_of, make_key
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.engine.read_budget import EVENT_OVERHEAD, ReadBudget
from partbox.worker.engine.scheduler import LaneScheduler
from partbox.worker.engine.state import EngineState


class WokenKey(NamedTuple):
    """A blocked key that may go on, and the rows of it to run; they count as loaded until queued or put back."""

    partition: Partition
    key: Key
    rows: list[ParkedRow]


class DueRow(NamedTuple):
    """A stored row that blocks nothing and is due."""

    partition: Partition
    stored: StoredRow
    row: ParkedRow


class DueQuery(NamedTuple):
    """The partitions whose due rows may be fetched, the ids of those that are in memory, and the bytes for others.

    `early`: ids of some that may be fetched before they are due. `in_line`: those in memory that wait for a permit.
    """

    partitions: dict[int, Partition]
    taken: list[int]
    bytes: int
    early: list[int]
    in_line: int


class SuspectRow(NamedTuple):
    """A row that is about to be charged."""

    partition: Partition
    row: ParkedRow


class Charge(NamedTuple):
    """The fenced call that notes rows as started: it moves no cursor."""

    cursors: list[CursorSave]
    parks: list[ParkedSave]


BuriedEvent = tuple[DeliveredEvent, Verdict]
"""A dead event, which is to be told of."""


class ParkedScheduler:
    """Asked by the poller's thread only."""

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
        self._claim_parts = claim[1:]  # by all partitions

    # Whose turn it is.

    @under_lock  # what wakes next, and who waits for a turn, belong to one moment
    def has_work(self, now: float) -> bool:
        """True if a blocked key may wake now, or a suspect that blocks nothing waits for its turn."""
        at = self._state.next_wakeup()
        return bool(self._state.charges.keyless) or (at is not None and at <= now)

    @under_lock  # guards the wakeups
    def next_at(self) -> float | None:
        """The time at which a blocked key may wake (monotonic seconds); None: there is none, or no byte for it."""
        return None if self._budget.is_starved else self._state.next_wakeup()

    @under_lock  # turns end with saves and with handlers
    def wake_trials(self) -> None:
        """Wake the suspects whose turn has come by now."""
        self._state.wake_next_trials()

    @under_lock  # a turn is taken once
    def take_keyless(self) -> Collection[int]:
        """The partitions with rows that block nothing and may have their turn now: suspects, or early ones."""
        early, self._state.early = self._state.early, set()
        return early | self._state.charges.take_keyless() if self._state.charges.keyless else early

    # Blocked keys.

    @under_lock  # whoever parks or saves meanwhile changes which heads there are
    def wake(self, now: float, most: int) -> tuple[list[WokenKey], int]:
        """At most `most` blocked keys whose head may run now, and the bytes that are left for their records.

        A suspect head that has no turn yet waits for it; a key of a partition that may not begin is looked at later.
        """
        at = self._state.next_wakeup()
        if at is None or at > now:
            return [], 0
        left = self._budget.left(self._state.partitions.values())
        return (self._take_woken(now, most) if left > 0 else []), left

    def _take_woken(self, now: float, most: int) -> list[WokenKey]:
        found: list[WokenKey] = []
        while len(found) < most and (waking := self._state.pop_wakeup(now)) is not None:
            partition, key = waking
            chain = partition.parked.chains[key]
            rows = list(takewhile(partition.parked.is_met, chain.list_runnable(now)))
            if rows and rows[0].suspect and not self._state.charges.admit(partition, key, rows[0]):
                continue
            for row in rows:
                row.load()
            if rows:
                found.append(WokenKey(partition, key, rows))
            elif (at := chain.wakes_at()) is not None and at > now:
                self._state.wake(partition, key)
        return found

    @under_lock  # a row is loaded and its key asleep, or neither
    def cut(self, woken: Sequence[WokenKey], left_out: Collection[int]) -> list[WokenKey]:
        """Keep of each chain what comes before the first id that is left out; the rest waits again."""
        kept = []
        for partition, key, rows in woken:
            complete = list(takewhile(lambda row: row.id not in left_out, rows))
            if len(complete) < len(rows):
                self._state.put_back_rows(partition, key, rows[len(complete) :])
            if complete:
                kept.append(WokenKey(partition, key, complete))
        return kept

    @under_lock  # as in `cut`
    def put_back(self, woken: Iterable[WokenKey]) -> None:
        """Their records could not be had: these keys wake again."""
        for each in woken:
            self._state.put_back_rows(*each)

    @under_lock  # a row is in its lane before anybody asks whether its key is caught up
    def queue(
        self, woken: Iterable[WokenKey], bodies: Mapping[int, Row], dead: Mapping[int, Verdict]
    ) -> list[BuriedEvent]:
        """Queue the records of these keys, and bury the heads that are `dead`, by id; what is buried is to be told."""
        buried = []
        for partition, key, rows in woken:
            if (verdict := dead.get(rows[0].id)) is not None:
                buried += self._bury(partition, rows[0], bodies[rows[0].id], verdict)
            else:
                self.queue_chain(partition, key, rows, bodies)
        return buried

    def queue_chain(self, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: Mapping[int, Row]) -> None:
        """Queue the records of a blocked key's rows that may run; a row whose record is gone goes too. Lock held.

        While their bodies were asked for, something of their key that ran may have failed, or been put back.
        """
        chain, lane = partition.parked.chains.get(key), partition.lanes.get(key)
        if chain is not None:
            if lane is not None and any(each.id > rows[0].id for each in list(lane.queue)):
                lane.park_waiting()
                self._state.mark_dirty(partition)
            in_line = chain.in_line(rows)
            if len(in_line) < len(rows):
                self._state.put_back_rows(partition, key, list(rows[len(in_line) :]))
            rows = in_line
        if rows and not partition.is_stopping:
            self._queue(partition, key, rows, bodies)

    # Rows that block nothing.

    @under_lock  # what is taken, and what a save deletes, belong to one moment
    def build_due_query(self, numbers: Iterable[int], most: int) -> DueQuery:
        """The question to the database for due rows of these partitions, if they have begun and do not stop; `most` of
        them may be early."""
        owned = ((number, self._state.partitions.get(number)) for number in numbers)
        mine = {number: each for number, each in owned if each and not each.is_stopping and each.may_begin()}
        taken = [id for partition in mine.values() for id in (*partition.parked.taken, *partition.parked.deleting)]
        left = self._budget.left(self._state.partitions.values()) if mine else 0
        self._state.early.update(number for number, each in mine.items() if each.parked.early)  # until they are fetched
        early = islice((id for partition in mine.values() for id in partition.parked.early), most)
        in_line = 0 if self._scheduler.limited is None else self._scheduler.limited.count_keyless()
        return DueQuery(mine, taken, left, [*early], in_line)

    @under_lock  # a turn is given once
    def admit(
        self, asked: DueQuery, stored: Sequence[StoredRow], left_out: Collection[int], now: float
    ) -> tuple[list[DueRow], bool]:
        """The rows that may go on now of those that were found; and whether these are all of them.

        One that was parked and committed while they were asked for is in memory already.
        """
        for number, partition in asked.partitions.items():
            for id in asked.early:
                partition.parked.early.pop(id, None)
            if not partition.parked.early:
                self._state.early.discard(number)
        found = [(asked.partitions[each.partition], each) for each in stored if each.record_id not in left_out]
        due = [
            DueRow(partition, each, partition.parked.due(each, now))
            for partition, each in found
            if each.record_id not in partition.parked.taken
        ]
        # An accused one runs alone, so it is asked for first: else it would wait for all the others.
        accused_first = sorted(due, key=lambda each: not each.row.accused)
        admitted_ids = {each.row.id for each in accused_first if self._admit(*each)}
        return [each for each in due if each.row.id in admitted_ids], len(admitted_ids) == len(due)

    @under_lock  # guards parked rows
    def return_suspects(self, suspects: Iterable[SuspectRow]) -> None:
        """The charge of these could not be written: another look may take them."""
        for _, row in suspects:
            row.end_trial()

    @under_lock  # as in `queue`
    def queue_due(
        self, due: Iterable[DueRow], bodies: Mapping[int, Row], dead: Mapping[int, Verdict], read: Iterable[Partition]
    ) -> list[BuriedEvent]:
        """Queue these, and bury those that are `dead`, by id; in the partitions of `read` there are no more."""
        buried = []
        for partition, stored, row in due:
            if (verdict := dead.get(row.id)) is not None:
                buried += self._bury(partition, row, bodies[row.id], verdict)
            elif not partition.is_stopping:
                self._queue_due(partition, stored, row, bodies)
        for partition in read:
            partition.parked.due_read = True
        return buried

    # Charges.

    @under_lock  # rows and epochs are of one moment
    def charge(self, suspects: Sequence[SuspectRow], bodies: Mapping[int, Row]) -> Charge:
        """The call that charges these: the attempt counts before it is made."""
        numbers = {partition.number: partition.epoch for partition, _ in suspects}
        cursors = [CursorSave(number, epoch, None, None, None, False) for number, epoch in numbers.items()]
        return Charge(cursors, [_build_charge(partition, row, bodies[row.id]) for partition, row in suspects])

    @under_lock  # guards the suspects and the attempts of parked rows
    def charged(self, suspects: Iterable[SuspectRow]) -> None:
        """The charge of these is committed."""
        for partition, row in suspects:
            partition.suspects.charged(row)

    def _admit(self, partition: Partition, stored: StoredRow, row: ParkedRow) -> bool:
        """True if the row may go on now: a suspect that would be charged only when it is its turn.

        Dead ones go to the hook, and those whose key is blocked are held: neither runs. One whose record is still to be
        read waits for that: done before, its row would be gone when the next owner reads the record (EVIDENCE B6).
        """
        if row.state is RowState.DEAD:
            return True
        if not partition.parked.is_met(row):
            return False
        if not row.suspect:
            return True
        key = make_key(stored.aggregate_type, stored.aggregate_id) if stored.aggregate_id else None
        chain = None if key is None else partition.parked.chains.get(key)
        if chain is not None and not chain.caught_up():
            return True
        return self._state.charges.admit(partition, None, row)

    # Into the lanes.

    def _queue_due(self, partition: Partition, stored: StoredRow, row: ParkedRow, bodies: Mapping[int, Row]) -> None:
        """Queue a row that blocks nothing, or hold it where its key is blocked (DESIGN 7)."""
        partition.parked.taken[row.id] = row
        if row.state is RowState.DEAD:
            self._queue_dead_letter(partition, stored, row, bodies.get(row.id))
            return
        key: Key = (
            (None, row.id) if stored.aggregate_id is None else make_key(stored.aggregate_type, stored.aggregate_id)
        )
        chain = partition.parked.chains.get(key)
        uncharged = row.suspect and not row.charged  # its key was blocked a moment ago
        if row.id not in bodies or not (uncharged or (chain is not None and not chain.caught_up())):
            self._queue(partition, key, [row], bodies)
        else:
            partition.parked.hold(self.event(partition, bodies[row.id], row))
            self._state.mark_dirty(partition)

    def _bury(self, partition: Partition, row: ParkedRow, body: Row, verdict: Verdict) -> list[BuriedEvent]:
        """Park a row as dead without another try: each time that it ran a process died (DESIGN 7, poison)."""
        if partition.is_stopping:
            return []
        event = self.event(partition, body, row)
        partition.parked.park(event, verdict)
        self._state.mark_dirty(partition)
        self._state.wake(partition, key_of(event))
        return [(event, verdict)]

    def _queue_dead_letter(self, partition: Partition, stored: StoredRow, row: ParkedRow, body: Row | None) -> None:
        """Have the hook get a dead event; without its record there is nothing to give."""
        if body is None:
            partition.parked.delete(row, b"")
            self._state.mark_dirty(partition)
            return
        event = DeliveredEvent(body, self._build_claim(partition), row.attempts, parked=row)
        partition.payload_bytes.add(row.id, EVENT_OVERHEAD + row_bytes(body))
        self._dead_letters.add(DeadLetter(partition, event, stored.error or ""))

    def _queue(self, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: Mapping[int, Row]) -> None:
        lane = partition.lanes.get(key) or Lane(partition, key)
        for row in rows:
            body = bodies.get(row.id)
            if body is None:
                partition.parked.delete_orphan(row, key)
                self._state.mark_dirty(partition)
            else:
                lane.queue.append(self.event(partition, body, row))
                partition.payload_bytes.add(row.id, EVENT_OVERHEAD + row_bytes(body))
        if not lane.queue:
            self._state.wake(partition, key)
        elif not lane.is_active:
            partition.lanes[key] = lane
            self._scheduler.make_ready([lane], due=True)

    def event(self, partition: Partition, body: Row, row: ParkedRow) -> DeliveredEvent:
        """The event of a parked row, at its next attempt. Lock held."""
        # The charge is the attempt.
        attempt = row.attempts + (not row.charged)
        return DeliveredEvent(body, self._build_claim(partition), attempt, parked=row)

    def _build_claim(self, partition: Partition) -> ClaimContext:
        return ClaimContext(partition.epoch, *self._claim_parts)


def _build_charge(partition: Partition, row: ParkedRow, body: Row) -> ParkedSave:
    return ParkedSave(
        partition.number,
        row.id,
        body[AGGREGATE_TYPE],
        body[AGGREGATE_ID],
        body[EVENT_TYPE],
        RowState.READY,
        blocks=row.blocks,
        attempts=row.attempts + 1,
        delay=None if row.blocks else 0.0,  # what blocks nothing is found by its due time
        new=False,
        charge=True,
    )
