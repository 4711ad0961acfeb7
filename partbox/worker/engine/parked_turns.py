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

from partbox.events import Claim, DeliveredEvent
from partbox.events.record import AGGREGATE_ID, AGGREGATE_TYPE, EVENT_TYPE, Row, size
from partbox.protocol.parking import ParkedRow, RowState
from partbox.protocol.rows import Park, Saving, Stored
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.key import Key, key_of, keyed
from partbox.worker.engine.letters import Letter, Letters
from partbox.worker.engine.lock import verb
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.engine.read_budget import OVERHEAD, ReadBudget
from partbox.worker.engine.runs import Runs
from partbox.worker.engine.state import EngineState


class Woken(NamedTuple):
    """A blocked key that may go on, and the rows of it to run; they count as loaded until queued or put back."""

    partition: Partition
    key: Key
    rows: list[ParkedRow]


class Due(NamedTuple):
    """A stored row that blocks nothing and is due."""

    partition: Partition
    stored: Stored
    row: ParkedRow


class DueQuestion(NamedTuple):
    """The partitions whose due rows may be fetched, the ids of those that are in memory, and the bytes for others.

    `early`: ids of some that may be fetched before they are due. `in_line`: those in memory that wait for a permit.
    """

    partitions: dict[int, Partition]
    taken: list[int]
    bytes: int
    early: list[int]
    in_line: int


class Suspected(NamedTuple):
    """A row that is about to be charged."""

    partition: Partition
    row: ParkedRow


class Charge(NamedTuple):
    """The fenced call that notes rows as started: it moves no cursor."""

    cursors: list[Saving]
    parks: list[Park]


Buried = tuple[DeliveredEvent, Verdict]
"""A dead event, which is to be told of."""


class ParkedTurns:
    """Asked by the poller's thread only."""

    def __init__(self, state: EngineState, runs: Runs, letters: Letters, budget: ReadBudget, claim: Claim) -> None:
        self._state = state
        self._lock = state.lock
        self._runs = runs
        self._letters = letters
        self._budget = budget
        self._shared = claim[1:]  # by all partitions

    # Whose turn it is.

    @verb  # what wakes next, and who waits for a turn, belong to one moment
    def is_next(self, now: float) -> bool:
        """True if a blocked key may wake now, or a suspect that blocks nothing waits for its turn."""
        at = self._state.next_wakeup()
        return bool(self._state.charges.keyless) or (at is not None and at <= now)

    @verb  # guards the wakeups
    def next_at(self) -> float | None:
        """The time at which a blocked key may wake (monotonic seconds); None: there is none, or no byte for it."""
        return None if self._budget.starved else self._state.next_wakeup()

    @verb  # turns end with saves and with handlers
    def pass_on(self) -> None:
        """Wake the suspects whose turn has come by now."""
        self._state.take_turns()

    @verb  # a turn is taken once
    def take_keyless(self) -> Collection[int]:
        """The partitions with rows that block nothing and may have their turn now: suspects, or early ones."""
        early, self._state.early = self._state.early, set()
        return early | self._state.charges.take_keyless() if self._state.charges.keyless else early

    # Blocked keys.

    @verb  # whoever parks or saves meanwhile changes which heads there are
    def wake(self, now: float, most: int) -> tuple[list[Woken], int]:
        """At most `most` blocked keys whose head may run now, and the bytes that are left for their records.

        A suspect head that has no turn yet waits for it; a key of a partition that may not begin is looked at later.
        """
        at = self._state.next_wakeup()
        if at is None or at > now:
            return [], 0
        left = self._budget.left(self._state.partitions.values())
        return (self._woken(now, most) if left > 0 else []), left

    def _woken(self, now: float, most: int) -> list[Woken]:
        found: list[Woken] = []
        while len(found) < most and (waking := self._state.pop_wakeup(now)) is not None:
            partition, key = waking
            chain = partition.parked.chains[key]
            rows = list(takewhile(partition.parked.met, chain.runnable(now)))
            if rows and rows[0].suspect and not self._state.charges.admit(partition, key, rows[0]):
                continue
            for row in rows:
                row.load()
            if rows:
                found.append(Woken(partition, key, rows))
            elif (at := chain.wakes_at()) is not None and at > now:
                self._state.wake(partition, key)
        return found

    @verb  # a row is loaded and its key asleep, or neither
    def cut(self, woken: Sequence[Woken], left_out: Collection[int]) -> list[Woken]:
        """Keep of each chain what comes before the first id that is left out; the rest waits again."""
        kept = []
        for partition, key, rows in woken:
            whole = list(takewhile(lambda row: row.id not in left_out, rows))
            if len(whole) < len(rows):
                self._state.unload(partition, key, rows[len(whole) :])
            if whole:
                kept.append(Woken(partition, key, whole))
        return kept

    @verb  # as in `cut`
    def put_back(self, woken: Iterable[Woken]) -> None:
        """Their records could not be had: these keys wake again."""
        for each in woken:
            self._state.unload(*each)

    @verb  # a row is in its lane before anybody asks whether its key is caught up
    def queue(self, woken: Iterable[Woken], bodies: Mapping[int, Row], dead: Mapping[int, Verdict]) -> list[Buried]:
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
                lane.hold_rest()
                self._state.touch(partition)
            in_line = chain.in_line(rows)
            if len(in_line) < len(rows):
                self._state.unload(partition, key, list(rows[len(in_line) :]))
            rows = in_line
        if rows and not partition.stopping:
            self._queue(partition, key, rows, bodies)

    # Rows that block nothing.

    @verb  # what is taken, and what a save deletes, belong to one moment
    def may_fetch_due(self, numbers: Iterable[int], most: int) -> DueQuestion:
        """The question to the database for due rows of these partitions, if they have begun and do not stop; `most` of
        them may be early."""
        held = ((number, self._state.partitions.get(number)) for number in numbers)
        mine = {number: each for number, each in held if each and not each.stopping and each.may_begin()}
        taken = [id for partition in mine.values() for id in (*partition.parked.taken, *partition.parked.deleting)]
        left = self._budget.left(self._state.partitions.values()) if mine else 0
        self._state.early.update(number for number, each in mine.items() if each.parked.early)  # until they are fetched
        early = islice((id for partition in mine.values() for id in partition.parked.early), most)
        in_line = 0 if self._runs.limited is None else self._runs.limited.count_loose()
        return DueQuestion(mine, taken, left, [*early], in_line)

    @verb  # a turn is given once
    def admit(
        self, asked: DueQuestion, stored: Sequence[Stored], left_out: Collection[int], now: float
    ) -> tuple[list[Due], bool]:
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
            Due(partition, each, partition.parked.due(each, now))
            for partition, each in found
            if each.record_id not in partition.parked.taken
        ]
        # An accused one runs alone, so it is asked for first: else it would wait for all the others.
        accused_first = sorted(due, key=lambda each: not each.row.accused)
        admitted_ids = {each.row.id for each in accused_first if self._admit(*each)}
        return [each for each in due if each.row.id in admitted_ids], len(admitted_ids) == len(due)

    @verb  # guards parked rows
    def hand_back(self, suspects: Iterable[Suspected]) -> None:
        """The charge of these could not be written: another look may take them."""
        for _, row in suspects:
            row.end_turn()

    @verb  # as in `queue`
    def queue_due(
        self, due: Iterable[Due], bodies: Mapping[int, Row], dead: Mapping[int, Verdict], read: Iterable[Partition]
    ) -> list[Buried]:
        """Queue these, and bury those that are `dead`, by id; in the partitions of `read` there are no more."""
        buried = []
        for partition, stored, row in due:
            if (verdict := dead.get(row.id)) is not None:
                buried += self._bury(partition, row, bodies[row.id], verdict)
            elif not partition.stopping:
                self._queue_due(partition, stored, row, bodies)
        for partition in read:
            partition.parked.due_read = True
        return buried

    # Charges.

    @verb  # rows and epochs are of one moment
    def charge(self, suspects: Sequence[Suspected], bodies: Mapping[int, Row]) -> Charge:
        """The call that charges these: the attempt counts before it is made."""
        numbers = {partition.number: partition.epoch for partition, _ in suspects}
        cursors = [Saving(number, epoch, None, None, None, False) for number, epoch in numbers.items()]
        return Charge(cursors, [_charge_of(partition, row, bodies[row.id]) for partition, row in suspects])

    @verb  # guards the suspects and the attempts of parked rows
    def charged(self, suspects: Iterable[Suspected]) -> None:
        """The charge of these is committed."""
        for partition, row in suspects:
            partition.suspects.charged(row)

    def _admit(self, partition: Partition, stored: Stored, row: ParkedRow) -> bool:
        """True if the row may go on now: a suspect that would be charged only when it is its turn.

        Dead ones go to the hook, and those whose key is blocked are held: neither runs. One whose record is still to be
        read waits for that: done before, its row would be gone when the next owner reads the record (EVIDENCE B6).
        """
        if row.state is RowState.DEAD:
            return True
        if not partition.parked.met(row):
            return False
        if not row.suspect:
            return True
        key = keyed(stored.aggregate_type, stored.aggregate_id) if stored.aggregate_id else None
        chain = None if key is None else partition.parked.chains.get(key)
        if chain is not None and not chain.caught_up():
            return True
        return self._state.charges.admit(partition, None, row)

    # Into the lanes.

    def _queue_due(self, partition: Partition, stored: Stored, row: ParkedRow, bodies: Mapping[int, Row]) -> None:
        """Queue a row that blocks nothing, or hold it where its key is blocked (DESIGN 7)."""
        partition.parked.taken[row.id] = row
        if row.state is RowState.DEAD:
            self._letter(partition, stored, row, bodies.get(row.id))
            return
        key: Key = (None, row.id) if stored.aggregate_id is None else keyed(stored.aggregate_type, stored.aggregate_id)
        chain = partition.parked.chains.get(key)
        uncharged = row.suspect and not row.charged  # its key was blocked a moment ago
        if row.id not in bodies or not (uncharged or (chain is not None and not chain.caught_up())):
            self._queue(partition, key, [row], bodies)
        else:
            partition.parked.hold(self.event(partition, bodies[row.id], row))
            self._state.touch(partition)

    def _bury(self, partition: Partition, row: ParkedRow, body: Row, verdict: Verdict) -> list[Buried]:
        """Park a row as dead without another try: each time that it ran a process died (DESIGN 7, poison)."""
        if partition.stopping:
            return []
        event = self.event(partition, body, row)
        partition.parked.park(event, verdict)
        self._state.touch(partition)
        self._state.wake(partition, key_of(event))
        return [(event, verdict)]

    def _letter(self, partition: Partition, stored: Stored, row: ParkedRow, body: Row | None) -> None:
        """Have the hook get a dead event; without its record there is nothing to give."""
        if body is None:
            partition.parked.delete(row, b"")
            self._state.touch(partition)
            return
        event = DeliveredEvent(body, self._claim(partition), row.attempts, parked=row)
        partition.payload_bytes.add(row.id, OVERHEAD + size(body))
        self._letters.add(Letter(partition, event, stored.error or ""))

    def _queue(self, partition: Partition, key: Key, rows: Sequence[ParkedRow], bodies: Mapping[int, Row]) -> None:
        lane = partition.lanes.get(key) or Lane(partition, key)
        for row in rows:
            body = bodies.get(row.id)
            if body is None:
                partition.parked.vanished(row, key)
                self._state.touch(partition)
            else:
                lane.queue.append(self.event(partition, body, row))
                partition.payload_bytes.add(row.id, OVERHEAD + size(body))
        if not lane.queue:
            self._state.wake(partition, key)
        elif not lane.active:
            partition.lanes[key] = lane
            self._runs.ready([lane], due=True)

    def event(self, partition: Partition, body: Row, row: ParkedRow) -> DeliveredEvent:
        """The event of a parked row, at its next attempt. Lock held."""
        # The charge is the attempt.
        attempt = row.attempts + (not row.charged)
        return DeliveredEvent(body, self._claim(partition), attempt, parked=row)

    def _claim(self, partition: Partition) -> Claim:
        return Claim(partition.epoch, *self._shared)


def _charge_of(partition: Partition, row: ParkedRow, body: Row) -> Park:
    return Park(
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
