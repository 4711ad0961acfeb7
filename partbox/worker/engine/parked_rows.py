"""The parked rows of one partition in memory, with the changes that the database does not have yet. The next save
writes the changes. The module `partbox.protocol.parking` defines the states of a row and says which of them block."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.events.checks import NEVER_AVAILABLE
from partbox.events.record import AVAILABLE_AT, EVENT_ID, parse_microseconds
from partbox.protocol.parking import READY_STATES, Chain, ParkedRow, RowStage, RowState, is_chain_waiting
from partbox.protocol.progress import Progress, free_empty_tables
from partbox.protocol.rows import IgnoredEvent, LooseRows, ParkedSave, RefilledKey, SpillStart, StoredRow, StoredSpill
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.key import Key, key_of, make_key, shorten
from partbox.worker.engine.spilled_keys import SpilledKeys
from partbox.worker.engine.suspects import Suspects

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# Stands for every later due time, here and in queries: all time zones still have a calendar then.
LATEST_DUE = "9999-12-30T00:00:00+00:00"
FAILED_BEFORE = "the event had failed in the table that it was imported from, before this subscription reached it"


@dataclass(slots=True)
class PayloadBytes:
    """The count of the bytes that one partition's large records use in memory."""

    # The records of set-aside (parked) events that are loaded count too.

    total: int = 0
    # By record id, from when a record is read until its event is finished or parked, or has blocked the partition for
    # too long.
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, record_id: int, size: int) -> None:
        """Count `size` bytes for the record with this id, in place of an earlier count."""
        self.total += size - self.sizes.get(record_id, 0)
        self.sizes[record_id] = size

    def drop(self, record_ids: Iterable[int]) -> None:
        """Stop counting the bytes of these records, which have left memory. Unknown ids are ignored."""
        for id in record_ids:
            self.total -= self.sizes.pop(id, 0)


@dataclass(slots=True)
class PendingPark:
    """An unsaved change of the database row of a failed or waiting event."""

    # `delay` is the seconds from the commit until the row is due. The event is parked.

    row: ParkedRow
    key: Key
    delay: float | None
    parked_save: ParkedSave


class UnsavedRows(NamedTuple):
    """The changes that the next save writes: changed rows, ids of rows to delete, ignored events, and spills."""

    parks: list[PendingPark]
    done_ids: list[int]
    ignored: list[IgnoredEvent]
    spills: list[SpillStart]


class ParkedRows:
    """The failed or waiting (parked) events of one partition, each with a database row of its own.

    They are in memory since the partition was last read from its saved cursor. All methods need the engine's lock.
    `dead_letters` is true if a hook must be called for dead events. A key with more rows than `spill_after` is spilled
    (`partbox.protocol.spill`)."""

    def __init__(
        self,
        number: int,
        progress: Progress,
        payload_bytes: PayloadBytes,
        suspects: Suspects,
        spill_after: int,
        *,
        dead_letters: bool,
    ) -> None:
        self._number = number
        self._progress = progress
        self._payload_bytes = payload_bytes
        self._suspects = suspects
        self._dead_letters = dead_letters
        # The version of the rows that were loaded, -1 before the first load.
        self.version = -1
        # The number of committed saves that changed rows. A load that overlaps with such a save is uncertain.
        self.change_count = 0
        # Blocking rows by key, in id order.
        self.chains: dict[Key, Chain] = {}
        # Rows that block nothing, while their events are in memory or their change is not saved.
        self.loose_rows: dict[int, ParkedRow] = {}
        # Ids of rows that are parked above the saved cursor and whose records have not been read yet.
        self.ahead_ids: set[int] = set()
        # True if every row that blocks nothing and was due has been looked at.
        self.has_read_due = False
        # Unsaved changes by record id.
        self.pending_parks: dict[int, PendingPark] = {}
        # Ids of rows to delete with the next save.
        self.done_ids: list[int] = []
        self.ignored_events: list[IgnoredEvent] = []
        self.spills = SpilledKeys(number, progress, self.chains, spill_after)
        # Event ids of rows that are done, until their deletion is committed.
        self.unsaved_deletions: dict[int, bytes] = {}
        # Ids of rows that block nothing and may be fetched before they are due.
        self.early_ids: dict[int, None] = {}
        # The number of rows that count against the brake.
        self.open_count = 0
        # The number of rows that wait for a permit or a time, or are held behind such a row.
        self.waiting_count = 0
        # Changes of `open_count` (False) and `waiting_count` (True) by rows that block nothing, which the database does
        # not know.
        self._unsaved_counts = {False: 0, True: 0}

    @property
    def row_count(self) -> int:
        """The number of rows of events that are not finished."""
        return self.open_count + self.waiting_count

    @property
    def are_rows_known(self) -> bool:
        """True if the partition's failed or waiting events have been loaded from the database."""
        # Before that, no event of the partition runs.
        return self.version >= 0

    def list_blocking(self) -> Iterator[ParkedRow]:
        """Return all failed or waiting events that make later events of the same key wait."""
        return (row for chain in self.chains.values() for row in chain)

    def list_in_memory(self) -> set[int]:
        """Return the record ids of the failed or waiting events that are in memory."""
        # Ids of rows that are being deleted because the events are done are returned too.
        return {*self.loose_rows, *self.unsaved_deletions, *(row.id for row in self.list_blocking() if row.is_loaded)}

    def park(self, event: DeliveredEvent, verdict: Verdict) -> ParkedRow:
        """Record an event as failed or waiting in a database row of its own, and return the row."""
        # The event is parked (set aside). The next save writes the row.
        # If the event is parked already, its row is changed.
        key = key_of(event)
        row: ParkedRow | None = event.parked
        new = row is None
        # An event without an aggregate id never blocks.
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
            self.loose_rows[row.id] = row
            self._add_loose_count(row, 1)
            if delay is None and state not in (RowState.DEAD, RowState.SCHEDULED):
                delay = 0.0
        event.parked = row
        self._add_pending(event, row, key, delay, new, verdict)
        return row

    def park_behind(self, event: DeliveredEvent) -> None:
        """Store an event in a database row, so that the event waits behind earlier events of the same key."""
        # A stored row whose attempt is not charged (saved before the run) is not changed and only waits again.
        row: ParkedRow | None = event.parked
        if row is not None and row.blocks and not row.is_charged:
            # A save of a draining partition may have taken the charge back before.
            if row.is_loaded:
                row.put_back()
            self._payload_bytes.drop((row.id,))
        else:
            suspect = row is not None and row.is_suspect
            held = self.park(event, Verdict(RowState.HELD, event.attempt - 1, None, True, None))
            if suspect:
                held.mark_suspect()

    def pass_spilled(self, event: DeliveredEvent, read_before: int) -> bool:
        """Return True if a new record of a blocked key is left in the log without a row, as the key has enough rows."""
        # The record counts as finished, and the next save says from which id on the key has records without rows.
        if not self.spills.pass_record(event, read_before):
            return False
        self._progress.finish([event.id], [b""])
        self._payload_bytes.drop((event.id,))
        self._suspects.note_passed(event.id)
        return True

    def note_refilled(self, refilled: RefilledKey) -> tuple[str, str]:
        """Add the rows that a refill has inserted for a key, and move or end the spill of the key. Return the key."""
        key = (refilled.aggregate_type, refilled.aggregate_id)
        chain = self.chains[key]
        for id in refilled.record_ids:
            chain.insert(ParkedRow(id, RowState.HELD, 0, True))
            self._add_count(1, waits=chain.waits)
        self.spills.note_refilled(key, refilled)
        return key

    def park_suspect(self, event: DeliveredEvent) -> None:
        """Set a new event aside that may have killed a process, so that an attempt is counted before the event runs."""
        # The attempt is saved for the parked row (charged).
        self.park(event, Verdict(RowState.READY, 0, None, True, None)).mark_suspect()
        self._suspects.note_passed(event.id)

    def park_scheduled(self, event: DeliveredEvent) -> None:
        """Store an event in a database row until the time in its `available_at`."""
        # An event that had failed before it was imported is parked as dead.
        micros = parse_microseconds(event.record[AVAILABLE_AT])
        if micros == NEVER_AVAILABLE and event.had_failed:
            # For subscriptions that existed at the import the event is parked already, and that row stays.
            self.park(event, Verdict(RowState.DEAD, 0, None, False, FAILED_BEFORE))
            return
        # A scheduled event never blocks.
        self.park(event, Verdict(RowState.SCHEDULED, 0, None, False, None, waits=True))
        try:
            due = min((_EPOCH + timedelta(microseconds=micros)).isoformat(), LATEST_DUE)
        except OverflowError:
            # The time may be infinity, which PostgreSQL 15 and 16 cannot subtract.
            due = LATEST_DUE
        park = self.pending_parks[event.id].parked_save
        park.delay, park.due = None, due

    def note_hook_result(self, event: DeliveredEvent, delay: float | None) -> None:
        """Record that the dead-letter hook got an event (`delay` is None), or must get it again in `delay` seconds."""
        # An event that was replayed meanwhile has another outcome already, which stays.
        row: ParkedRow = event.parked
        row.put_back()
        self._payload_bytes.drop((row.id,))
        if row.id in self.pending_parks:
            return
        self._add_pending(event, row, key_of(event), delay, False, None)
        self.pending_parks[row.id].parked_save.is_dead_letter = True

    def put_back(self, event: DeliveredEvent) -> None:
        """Drop from memory an event that the dead-letter hook did not get, so that the event is loaded again later."""
        # The event is dead.
        # The row of the event stays due in the database, and is fetched again.
        if self.loose_rows.get(event.id) is event.parked:
            del self.loose_rows[event.id]
            self._payload_bytes.drop((event.id,))

    def note_done(self, event: DeliveredEvent) -> None:
        """Record that a failed or waiting event is done, so that later events of its key may run."""
        # The next save deletes its row.
        row: ParkedRow = event.parked
        self._remove_from_chain(row, key_of(event))
        self.delete(row, event.record[EVENT_ID])

    def delete_orphan(self, row: ParkedRow, key: Key) -> None:
        """Delete the database row of a failed or waiting event whose record no longer exists."""
        # The next save deletes the row.
        # The key no longer waits for the row.
        self._remove_from_chain(row, key)
        self.delete(row, b"")

    def delete(self, row: ParkedRow, event_id: bytes) -> None:
        """Delete the database row of a failed or waiting event that blocks no other events."""
        # The next save deletes the row.
        # The row is in no chain: no key waits for it any more. `event_id` is empty if the event is not done.
        self._payload_bytes.drop((row.id,))
        self.done_ids.append(row.id)
        self.unsaved_deletions[row.id] = event_id
        row.end_trial()
        # The event may be parked above the saved cursor. If the record is read again, the event is known as done.
        self._progress.refinish(row.id, event_id)

    def count_as_waiting(self, key: Key) -> None:
        """Count the events of a key as waiting and not as failed, because the first only waits for a handler's
        limit."""
        # The events are parked, and the first waits for a permit.
        # Rows that wait for a permit or a time, and rows held behind them, are no trouble, so the brake ignores them.
        # The first event has not failed.
        chain = self.chains.get(key)
        if chain is not None and chain.rows and chain.rows[0].state in READY_STATES:
            self._recount_chain(chain, waits=True)

    def put_off(self, event: DeliveredEvent, now: float, delay: float) -> bool:
        """Drop from memory an event that waits for a rate limit. Return False if it must stay in memory."""
        # Nothing is saved. The parked event waits for a permit. It is kept if the database does not have its row as
        # waiting.
        row: ParkedRow | None = event.parked
        if row is None or row.state is not RowState.DEFERRED or not row.waits or row.stage is not RowStage.LOADED:
            return False
        if row.blocks:
            # A row that blocks is due in memory.
            row.due = now + delay
        # A row that blocks nothing is found by its due time in the database, which must not have come yet.
        elif row.due is None or row.due <= now:
            return False
        else:
            del self.loose_rows[row.id]
        row.put_back()
        self._payload_bytes.drop((row.id,))
        return True

    def take_ahead(self, record_id: int) -> bool:
        """Return True, once for each record, if the record's event was set aside before the record was read."""
        # The id of the record is forgotten then.
        # The row of the record was parked ahead of the saved cursor.
        if record_id in self.ahead_ids:
            self.ahead_ids.discard(record_id)
            return True
        return False

    def has_reached(self, row: ParkedRow) -> bool:
        """Return True if all earlier events of the row's key have been read."""
        # Reading has then reached the record of the row.
        # A row that was parked late is ahead of the cursor, and earlier events of its key are still to be read.
        return row.id not in self.ahead_ids

    def has_passed(self, row: ParkedRow) -> bool:
        """Return True if the partition's saved position is past the record of this row."""
        # Then only the row keeps the event from being lost.
        return row.id not in self.ahead_ids and not self._progress.has_finished(row.id)

    def take_unsaved(self) -> UnsavedRows:
        """Remove and return the row changes of failed or waiting events that the next save must write."""
        unsaved = UnsavedRows(
            list(self.pending_parks.values()), self.done_ids, self.ignored_events, self.spills.take_unsaved()
        )
        self.pending_parks, self.done_ids, self.ignored_events, self._unsaved_counts = {}, [], [], {False: 0, True: 0}
        return unsaved

    def note_committed(self, pending: Iterable[PendingPark], done_ids: list[int], now: float) -> list[Key]:
        """Record that the row changes of a save are committed. Return the keys that may now have events to run."""
        self.change_count += 1
        for id in done_ids:
            self.unsaved_deletions.pop(id, None)
            self.loose_rows.pop(id, None)
        keys = []
        for each in pending:
            row = each.row
            row.due = None if each.delay is None else now + each.delay
            again = self.pending_parks.get(row.id)
            if again is not None and again.row is row:
                # The row was changed again meanwhile.
                continue
            row.note_saved()
            if row.blocks:
                keys.append(each.key)
            if row.blocks or not row.is_loaded:
                self.loose_rows.pop(row.id, None)
        free_empty_tables(self.chains, self.loose_rows, self.unsaved_deletions)
        return keys

    def load_rows(
        self, rows: list[StoredRow], loose: LooseRows, now: float, spills: Iterable[StoredSpill] = ()
    ) -> list[Key]:
        """Replace the failed and waiting events in memory by the stored rows. Return the keys that they block."""
        # `rows` block their keys, `loose` rows block nothing. Changes that are not saved yet are kept.
        # Rows in memory that are changed or being deleted stay as they are.
        known = {row.id: row for row in self.list_blocking()}
        kept = {id for id, row in known.items() if row.stage is not RowStage.WAITING} | self.unsaved_deletions.keys()
        # A changed row is kept even if it blocks nothing any more. Otherwise it would run again in its old state before
        # the change is saved. A row of which only the dead letter is unsaved is not kept, because it may have been
        # replayed by now.
        kept |= {id for id, pending in self.pending_parks.items() if not pending.parked_save.is_dead_letter}
        for key, chain in list(self.chains.items()):
            chain.rows = [row for row in chain if row.id in kept]
            if not chain.rows and chain.spill is None:
                del self.chains[key]
        self.spills.load({(each.aggregate_type, each.aggregate_id): each.from_id for each in spills})
        for stored in rows:
            if stored.record_id not in kept and stored.aggregate_id is not None:
                due = None if stored.due_in is None else now + stored.due_in
                row = ParkedRow(
                    stored.record_id, RowState(stored.state), stored.attempts, True, due, waits=stored.waits
                )
                self._suspects.mark_suspect(stored, row)
                key = make_key(stored.aggregate_type, stored.aggregate_id)
                self.chains.setdefault(key, Chain()).insert(row)
                if stored.was_started and not row.is_accused:
                    self._undo_charge(row, key)
        # Loose rows that wait for a permit may be fetched before they are due.
        self.early_ids.update(dict.fromkeys(loose.permit_wait_ids))
        self.open_count, self.waiting_count = (
            loose.open_count + self._unsaved_counts[False],
            loose.waiting_count + self._unsaved_counts[True],
        )
        for chain in self.chains.values():
            if chain.rows:
                chain.waits = is_chain_waiting(chain.rows[0], before=chain.waits)
            self._add_count(chain.count_open(), waits=chain.waits)
        return list(self.chains)

    def build_due_row(self, stored: StoredRow, now: float) -> ParkedRow:
        """Create the in-memory object for a stored row whose event is about to run."""
        # The parked row blocks nothing.
        due = None if stored.due_in is None else now + stored.due_in
        row = ParkedRow(
            stored.record_id, RowState(stored.state), stored.attempts, False, due, RowStage.LOADED, waits=stored.waits
        )
        self._suspects.mark_suspect(stored, row)
        return row

    def _undo_charge(self, row: ParkedRow, key: tuple[str, str]) -> None:
        # After a lost connection this takes back an attempt that was counted before its event ran.
        # The attempt was saved for the row (a charge). The row is charged again when it runs.
        row.mark_changed()
        park = ParkedSave(
            self._number, row.id, *key, "", RowState.READY,
            blocks=True, attempts=row.attempts, is_new=False,
        )  # fmt: skip
        self.pending_parks[row.id] = PendingPark(row, key, None, park)

    def _add_count(self, more: int, *, waits: bool) -> None:
        if waits:
            self.waiting_count += more
        else:
            self.open_count += more

    def _add_loose_count(self, row: ParkedRow, more: int) -> None:
        if row.state is not RowState.DEAD:
            self._add_count(more, waits=row.waits)
            self._unsaved_counts[row.waits] += more

    def _recount_chain(self, chain: Chain, *, waits: bool) -> None:
        # All rows of the key's chain move from the count of troubled rows to that of waiting rows, or back, if the
        # state of the chain has changed.
        if chain.waits is not waits:
            chain.waits, rows = waits, chain.count_open()
            self._add_count(rows, waits=waits)
            self._add_count(-rows, waits=not waits)

    def _add_to_chain(self, row: ParkedRow, key: Key) -> None:
        chain = self.chains.setdefault(key, Chain())
        chain.insert(row)
        self._add_count(row.state is not RowState.DEAD, waits=chain.waits)
        # The head decides whether the chain waits.
        if chain.rows[0] is row:
            self._recount_chain(chain, waits=is_chain_waiting(row, before=chain.waits))

    def _remove_from_chain(self, row: ParkedRow, key: Key) -> None:
        if not row.blocks:
            self._add_loose_count(row, -1)
            return
        chain = self.chains[key]
        chain.rows.remove(row)
        self._add_count(-(row.state is not RowState.DEAD), waits=chain.waits)
        chain.blocked_by_slow = False
        if not chain.rows and chain.spill is None:
            del self.chains[key]

    def _add_pending(
        self, event: DeliveredEvent, row: ParkedRow, key: Key, delay: float | None, new: bool, verdict: Verdict | None
    ) -> None:
        error, trace, is_wait = (verdict.error, verdict.trace, verdict.is_wait) if verdict else (None, None, False)
        outcome, seconds = (verdict.outcome, verdict.seconds) if verdict else (None, None)
        # An earlier change that was not sent is merged with this one.
        before = self.pending_parks.get(row.id)
        if before is not None:
            new = new or before.parked_save.is_new
            if outcome is None:
                outcome, seconds = before.parked_save.outcome, before.parked_save.seconds
            if error is None or (is_wait and before.parked_save.error is not None):
                error, trace, is_wait = before.parked_save.error, before.parked_save.trace, before.parked_save.is_wait
        park = ParkedSave(
            self._number,
            row.id,
            key[0] or shorten(event.aggregate_type),
            None if key[0] is None else key[1],
            shorten(event.event_type),
            row.state,
            blocks=row.blocks,
            attempts=row.attempts,
            delay=delay,
            error=error,
            trace=trace,
            is_new=new,
            is_wait=is_wait,
            outcome=outcome,
            seconds=seconds,
        )
        self.pending_parks[row.id] = PendingPark(row, key, delay, park)
