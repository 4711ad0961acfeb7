"""The parked rows of one partition in memory, and what of them the database does not know yet.

A row that blocks its key is in the key's chain; one that blocks nothing is `taken` while its event is in memory. What
becomes of either goes with the next save. States, and which of them block, are those of DESIGN 7; B6 is of EVIDENCE.

Rows that wait for a permit or a time, and rows that are held behind one, are counted apart (`waiting`): they are no
trouble, so the brake does not see them (DESIGN 7a).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from partbox.events import DeliveredEvent
from partbox.events.checks import NEVER_AVAILABLE
from partbox.events.record import AVAILABLE_AT, EVENT_ID, microseconds
from partbox.protocol.parking import READY_STATES, Chain, ParkedRow, RowStage, RowState, waits
from partbox.protocol.progress import Progress, free_empty_tables
from partbox.protocol.rows import IgnoredEvent, LooseRows, ParkedSave, StoredRow
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.key import Key, key_of, make_key, shorten
from partbox.worker.engine.suspects import Suspects

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
LATEST_DUE = "9999-12-30T00:00:00+00:00"
"""When an event is due that is due after it, here and in queries: all time zones have a calendar then."""
FAILED_BEFORE = "it had failed in the table that it was imported from, before this subscription came to it"


@dataclass(slots=True)
class PayloadBytes:
    """The bytes that a partition holds in memory beside its small new records: large ones, and parked ones that run.

    Sizes by record id, from when a record is read until it is finished, parked, or has stood in the way too long.
    """

    total: int = 0
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, record_id: int, size: int) -> None:
        self.total += size - self.sizes.get(record_id, 0)
        self.sizes[record_id] = size

    def drop(self, record_ids: Iterable[int]) -> None:
        """Forget the sizes of these records; one that is not held is ignored."""
        for id in record_ids:
            self.total -= self.sizes.pop(id, 0)


@dataclass(slots=True)
class PendingPark:
    """A park that is not committed yet, and the row in memory that it makes."""

    row: ParkedRow
    key: Key
    delay: float | None
    park: ParkedSave


class ParkedRows:
    """The parked rows of one incarnation of a partition; every method wants the lock held.

    `dead_letters`: dead events are owed to a hook.
    """

    def __init__(
        self, number: int, progress: Progress, payload_bytes: PayloadBytes, suspects: Suspects, *, dead_letters: bool
    ) -> None:
        self._number = number
        self._progress = progress
        self._payload_bytes = payload_bytes
        self._suspects = suspects
        self._dead_letters = dead_letters
        self.version = -1  # of the rows as they were loaded; -1 before that
        self.changes = 0  # saves that changed rows
        self.chains: dict[Key, Chain] = {}
        self.taken: dict[int, ParkedRow] = {}
        self.ahead: set[int] = set()  # ids parked above the saved cursor, whose records have not been read yet
        self.due_read = False  # every row that blocks nothing and was due has been looked at
        self.pending: dict[int, PendingPark] = {}
        self.done_ids: list[int] = []
        self.ignored: list[IgnoredEvent] = []
        self.deleting: dict[int, bytes] = {}  # rows that are finished, until their deletion is committed
        self.early: dict[int, None] = {}  # ids of rows that block nothing and may be fetched before they are due
        self.open = 0  # rows that count against the brake
        self.waiting = 0  # rows that wait for a permit or a time, and what is held behind them
        # The part of both that blocks nothing and that the database does not know of: more rows, or fewer.
        self._unsaved_counts = {False: 0, True: 0}

    @property
    def known(self) -> bool:
        """True from when they are loaded."""
        return self.version >= 0

    def list_blocking(self) -> Iterator[ParkedRow]:
        return (row for chain in self.chains.values() for row in chain)

    def list_in_memory(self) -> set[int]:
        """The ids of the rows whose events are in memory, or finished and not deleted yet."""
        return {*self.taken, *self.deleting, *(row.id for row in self.list_blocking() if row.loaded)}

    # What becomes of an event.

    def park(self, event: DeliveredEvent, verdict: Verdict) -> ParkedRow:
        """Park an event, or change the row of a parked one, with the next save. Nothing blocks without an aggregate."""
        key = key_of(event)
        row: ParkedRow | None = event.parked
        new = row is None
        blocks = verdict.blocks and key[0] is not None
        state, delay = verdict.state, verdict.delay
        if row is None:
            row = ParkedRow(event.id, state, verdict.attempts, blocks, stage=RowStage.UNSAVED, waits=verdict.waits)
            self._progress.finish([row.id], [b""])
        else:
            self._remove_from_chain(row, key)
            row.park(state, verdict.attempts, blocks=blocks, waits=verdict.waits)
        self._payload_bytes.drop((row.id,))
        if state is RowState.DEAD and self._dead_letters:
            delay = 0.0
        if blocks:
            self._add_to_chain(row, key)
        else:
            self.taken[row.id] = row
            self._add_loose_count(row, 1)
            if delay is None and state not in (RowState.DEAD, RowState.SCHEDULED):
                delay = 0.0
        event.parked = row
        self._add_pending(event, row, key, delay, new, verdict)
        return row

    def hold(self, event: DeliveredEvent) -> None:
        """Park an event behind others of its key. A row that is parked already just waits again, uncharged."""
        row: ParkedRow | None = event.parked
        if row is not None and row.blocks and not row.charged:
            if row.loaded:  # a save of a draining partition may have taken its charge back before
                row.put_back()
            self._payload_bytes.drop((row.id,))
        else:
            suspect = row is not None and row.suspect
            held = self.park(event, Verdict(RowState.HELD, event.attempt - 1, None, True, None))
            if suspect:
                held.mark_suspect()

    def suspect(self, event: DeliveredEvent) -> None:
        """Park a suspect, so that it can be charged."""
        self.park(event, Verdict(RowState.READY, 0, None, True, None)).mark_suspect()
        self._suspects.left -= 1

    def schedule(self, event: DeliveredEvent) -> None:
        """Park an event whose time has not come; it never blocks. One that had failed when it was imported is dead.

        For the subscriptions that there were then it is parked already, and that row stays.
        """
        micros = microseconds(event.record[AVAILABLE_AT])
        if micros == NEVER_AVAILABLE and event.had_failed:
            self.park(event, Verdict(RowState.DEAD, 0, None, False, FAILED_BEFORE))
            return
        self.park(event, Verdict(RowState.SCHEDULED, 0, None, False, None, waits=True))
        try:
            due = min((_EPOCH + timedelta(microseconds=micros)).isoformat(), LATEST_DUE)
        except OverflowError:  # perhaps infinity, which PostgreSQL 15 and 16 cannot subtract
            due = LATEST_DUE
        park = self.pending[event.id].park
        park.delay, park.due = None, due

    def dead_letter(self, event: DeliveredEvent, delay: float | None) -> None:
        """A dead event was given to the dead-letter hook (None), or is to be again after `delay` seconds."""
        row: ParkedRow = event.parked
        row.put_back()
        self._payload_bytes.drop((row.id,))
        if row.id in self.pending:  # replayed meanwhile, and something has become of it already
            return
        self._add_pending(event, row, key_of(event), delay, False, None)
        self.pending[row.id].park.dead_letter = True

    def put_back(self, event: DeliveredEvent) -> None:
        """Forget a dead event that the hook was not given: its row stays due, and is read again."""
        if self.taken.get(event.id) is event.parked:
            del self.taken[event.id]
            self._payload_bytes.drop((event.id,))

    def done(self, event: DeliveredEvent) -> None:
        """A parked event is done: its row goes with the next save."""
        row: ParkedRow = event.parked
        self._remove_from_chain(row, key_of(event))
        self.delete(row, event.record[EVENT_ID])

    def delete_orphan(self, row: ParkedRow, key: Key) -> None:
        """The record of a row is gone: so goes the row."""
        self._remove_from_chain(row, key)
        self.delete(row, b"")

    def delete(self, row: ParkedRow, event_id: bytes) -> None:
        """Delete a row that blocks nothing any more with the next save."""
        self._payload_bytes.drop((row.id,))
        self.done_ids.append(row.id)
        self.deleting[row.id] = event_id
        row.end_trial()
        self._progress.refinish(row.id, event_id)  # parked above the saved cursor: when read again, it is done (B6)

    # What waits.

    def count_as_waiting(self, key: Key) -> None:
        """Count the rows of a key as waiting: its head, which has not failed, is in line for a permit."""
        chain = self.chains.get(key)
        if chain is not None and chain.rows[0].state in READY_STATES:
            self._recount_chain(chain, waits=True)

    def put_off(self, event: DeliveredEvent, now: float, delay: float) -> bool:
        """Take from memory an event whose row says already that it waits; False if its row does not say so.

        So that costs no statement. A row that blocks nothing is found by its due time in the database, which must not
        have come yet. One that blocks is due in memory, after the delay.
        """
        row: ParkedRow | None = event.parked
        if row is None or row.state is not RowState.DEFERRED or not row.waits or row.stage is not RowStage.LOADED:
            return False
        if row.blocks:
            row.due = now + delay
        elif row.due is None or row.due <= now:
            return False
        else:
            del self.taken[row.id]
        row.put_back()
        self._payload_bytes.drop((row.id,))
        return True

    # Where the log has been read to.

    def take_ahead(self, record_id: int) -> bool:
        """True if a record just read was parked ahead of the saved cursor; from now on it is met."""
        if record_id in self.ahead:
            self.ahead.discard(record_id)
            return True
        return False

    def is_met(self, row: ParkedRow) -> bool:
        """True if all that comes before this row in its key is known here.

        Not while its record is ahead of where the log was read: it was parked late, and what precedes it in its key is
        still to come (EVIDENCE B6).
        """
        return row.id not in self.ahead

    def is_passed(self, row: ParkedRow) -> bool:
        """True if the saved cursor has passed the record of this row: without the row it does not come again."""
        return row.id not in self.ahead and not self._progress.has_finished(row.id)

    # As stored.

    def take_unsaved(self) -> tuple[list[PendingPark], list[int], list[IgnoredEvent]]:
        """The parks, deletions and ignored events for a save; from here on they are on their way."""
        unsaved = list(self.pending.values()), self.done_ids, self.ignored
        self.pending, self.done_ids, self.ignored, self._unsaved_counts = {}, [], [], {False: 0, True: 0}
        return unsaved

    def note_committed(self, pending: Iterable[PendingPark], done_ids: list[int], now: float) -> list[Key]:
        """Note that these are committed; return the keys whose chains may have something to run."""
        self.changes += 1
        for id in done_ids:
            self.deleting.pop(id, None)
            self.taken.pop(id, None)
        keys = []
        for each in pending:
            row = each.row
            row.due = None if each.delay is None else now + each.delay
            again = self.pending.get(row.id)
            if again is not None and again.row is row:
                continue  # changed again meanwhile
            row.saved()
            if row.blocks:
                keys.append(each.key)
            if row.blocks or not row.loaded:
                self.taken.pop(row.id, None)
        free_empty_tables(self.chains, self.taken, self.deleting)
        return keys

    def load(self, rows: list[StoredRow], loose: LooseRows, now: float) -> list[Key]:
        """Take over the blocking rows as stored; those in memory that are changed or being deleted stay as they are.

        Of `loose` rows, which block nothing, those that wait for a permit may be fetched before they are due.
        """
        known = {row.id: row for row in self.list_blocking()}
        kept = {id for id, row in known.items() if row.stage is not RowStage.WAITING} | self.deleting.keys()
        # A row that has changed is kept out too where it blocks nothing any more, or it would run once more as it was
        # before that change is saved. Not one of which only the letter is unsaved: it may have been replayed by now.
        kept |= {id for id, pending in self.pending.items() if not pending.park.dead_letter}
        for key, chain in list(self.chains.items()):
            chain.rows = [row for row in chain if row.id in kept]
            if not chain.rows:
                del self.chains[key]
        for stored in rows:
            if stored.record_id not in kept and stored.aggregate_id is not None:
                due = None if stored.due is None else now + stored.due
                row = ParkedRow(
                    stored.record_id, RowState(stored.state), stored.attempts, True, due, waits=stored.waits
                )
                self._suspects.mark_suspect(stored, row)
                key = make_key(stored.aggregate_type, stored.aggregate_id)
                self.chains.setdefault(key, Chain()).insert(row)
                if stored.started and not row.accused:
                    self._undo_charge(row, key)
        self.early.update(dict.fromkeys(loose.turns))
        self.open, self.waiting = loose.open + self._unsaved_counts[False], loose.waiting + self._unsaved_counts[True]
        for chain in self.chains.values():
            chain.waits = waits(chain.rows[0], before=chain.waits)
            self._add_count(chain.count_open(), waits=chain.waits)
        return list(self.chains)

    def due(self, stored: StoredRow, now: float) -> ParkedRow:
        """A stored row that blocks nothing, in memory."""
        due = None if stored.due is None else now + stored.due
        row = ParkedRow(
            stored.record_id, RowState(stored.state), stored.attempts, False, due, RowStage.LOADED, waits=stored.waits
        )
        self._suspects.mark_suspect(stored, row)
        return row

    def _undo_charge(self, row: ParkedRow, key: tuple[str, str]) -> None:
        """Take back a charge made before the connection was lost; it is made again when the row runs."""
        row.change()
        park = ParkedSave(
            self._number, row.id, *key, "", RowState.READY,
            blocks=True, attempts=row.attempts, new=False,
        )  # fmt: skip
        self.pending[row.id] = PendingPark(row, key, None, park)

    def _add_count(self, more: int, *, waits: bool) -> None:
        if waits:
            self.waiting += more
        else:
            self.open += more

    def _add_loose_count(self, row: ParkedRow, more: int) -> None:
        if row.state is not RowState.DEAD:
            self._add_count(more, waits=row.waits)
            self._unsaved_counts[row.waits] += more

    def _recount_chain(self, chain: Chain, *, waits: bool) -> None:
        """Count all rows of a chain anew if it waits from now on, or is trouble."""
        if chain.waits is not waits:
            chain.waits, rows = waits, chain.count_open()
            self._add_count(rows, waits=waits)
            self._add_count(-rows, waits=not waits)

    def _add_to_chain(self, row: ParkedRow, key: Key) -> None:
        """Put a row into the chain of its key; at the head it decides whether the chain waits."""
        chain = self.chains.setdefault(key, Chain())
        chain.insert(row)
        self._add_count(row.state is not RowState.DEAD, waits=chain.waits)
        if chain.rows[0] is row:
            self._recount_chain(chain, waits=waits(row, before=chain.waits))

    def _remove_from_chain(self, row: ParkedRow, key: Key) -> None:
        """Take a row out of what is counted, and out of its chain if it blocks."""
        if not row.blocks:
            self._add_loose_count(row, -1)
            return
        chain = self.chains[key]
        chain.rows.remove(row)
        self._add_count(-(row.state is not RowState.DEAD), waits=chain.waits)
        chain.blocked_by_slow = False
        if not chain.rows:
            del self.chains[key]

    def _add_pending(
        self, event: DeliveredEvent, row: ParkedRow, key: Key, delay: float | None, new: bool, verdict: Verdict | None
    ) -> None:
        error, trace, is_wait = (verdict.error, verdict.trace, verdict.is_wait) if verdict else (None, None, False)
        outcome, seconds = (verdict.outcome, verdict.seconds) if verdict else (None, None)
        before = self.pending.get(row.id)  # not sent yet: the two become one
        if before is not None:
            new = new or before.park.new
            if outcome is None:
                outcome, seconds = before.park.outcome, before.park.seconds
            if error is None or (is_wait and before.park.error is not None):
                error, trace, is_wait = before.park.error, before.park.trace, before.park.is_wait
        park = ParkedSave(
            self._number,
            row.id,
            shorten(event.aggregate_type),
            None if event.aggregate_id is None else shorten(event.aggregate_id),
            shorten(event.event_type),
            row.state,
            blocks=row.blocks,
            attempts=row.attempts,
            delay=delay,
            error=error,
            trace=trace,
            new=new,
            is_wait=is_wait,
            outcome=outcome,
            seconds=seconds,
        )
        self.pending[row.id] = PendingPark(row, key, delay, park)
