"""The memory of a partition across lost connections, so that no event is handled a second time. Events are compared by
record id and event id, because the server may use ids again."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from partbox.protocol.horizon import Page
from partbox.protocol.progress import Progress
from partbox.worker.engine.parked_rows import ParkedRows

# Seconds after a lost connection during which a partition does not drain, so that events that were done or running can
# be found again. A few polls are enough, unless the window is full or too many rows are parked.
RECHECK_SECONDS = 10.0

RecordIdentity = tuple[int, bytes]


@dataclass(slots=True)
class Resumption:
    """The events of one partition that were done or running at a lost connection, and must not be handled again."""

    # Kept until the event is read again, or cannot come again because its save was committed after all. Everything here
    # needs the engine's lock, except looking into this set.
    remembered: set[RecordIdentity] = field(default_factory=set)
    # Remembered events that do not come again if their save was committed.
    _unconfirmed: set[RecordIdentity] = field(default_factory=set)
    # The highest remembered id. Rows above it cannot be remembered events.
    max_remembered_id: int = 0
    _reset_at: float | None = None
    # Every event that was done or running at the loss is found by reading up to this id.
    read_to: int = 0
    # Ids of parked records that were done or in memory at the loss.
    _parked_ids: set[int] = field(default_factory=set)

    def remember_done(self, progress: Progress, parked: ParkedRows, read_to: int, now: float) -> None:
        """Remember the events that are done, after a lost connection, so that they do not run again."""
        # The partition is read anew. The server may have lost the tail of its log, and may use ids and transaction ids
        # again, so nothing that was read before is trusted. A record id alone may belong to another event by now.
        # The log had been read up to the id `read_to`.
        if self._reset_at is None or now > self._reset_at + RECHECK_SECONDS:
            self._parked_ids.clear()
        self._reset_at = now
        self.remembered.update(progress.list_done(), parked.unsaved_deletions.items())
        self._unconfirmed = set(self.remembered)
        self.max_remembered_id = max((id for id, _ in self.remembered), default=0)
        self.read_to = max(self.read_to, read_to)
        self._parked_ids.update(parked.list_in_memory())

    def is_recheck_over(self, parked: ParkedRows, read_to: float | None, now: float) -> bool:
        """Return True if the partition may be released after a lost connection."""
        # All remembered events must have been read again, or enough time have passed.
        if self._reset_at is None or now > self._reset_at + RECHECK_SECONDS:
            return True
        # `read_to` is None while the partition is read alone or in a cut page.
        if not parked.are_rows_known or read_to is None or read_to < self.read_to:
            return False
        if self._parked_ids and not parked.has_read_due:
            return False
        # After a crash of the server, the row of such an event may be lost, and its record waits in the log again.
        first_spilled = parked.spills.find_first_id()
        if any(id >= first_spilled for id, _ in self.remembered):
            return False
        return not any(row.id in self._parked_ids and not row.is_loaded for row in parked.list_blocking())

    def note_saved(self, page: Page, last_id: int, parked: ParkedRows) -> None:
        """Forget events that were remembered after a lost connection, once a committed save is past them."""
        # Events that are set aside (parked) stay remembered.
        # An earlier save had them, so they do not come again.
        if not self._unconfirmed or not parked.are_rows_known or not parked.has_read_due:
            return
        # Events that ran when the connection was lost are not forgotten here: an event that is read again may be
        # parked, and be done all the same. If the server has lost the event, it is remembered until the next lost
        # connection.
        # A record that waits in the log without a row comes again, although the cursor has passed it.
        passed = min(page.floor, last_id, parked.spills.find_first_id() - 1)
        still_parked = parked.loose_rows.keys() | {row.id for row in parked.list_blocking()}
        saved = {pair for pair in self._unconfirmed if pair[0] <= passed and pair[0] not in still_parked}
        self._unconfirmed -= saved
        self.forget(saved)

    def forget(self, pairs: Iterable[RecordIdentity]) -> None:
        self.remembered.difference_update(pairs)
