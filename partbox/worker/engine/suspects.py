"""The records of one partition that may have killed its last owner."""

from dataclasses import dataclass, field

from partbox.protocol.parking import ParkedRow
from partbox.protocol.rows import StoredRow


@dataclass(slots=True)
class Suspects:
    """The new records that may have killed a partition's last owner, up to the last id that the owner had read.
    `expected_count` is the number that may still come. The caller holds the lock."""

    # Rows that a dead owner had charged, and this owner has not.
    _accused: set[int] = field(default_factory=set)
    _is_first_incarnation: bool = True
    _last_suspect_id: int = 0
    expected_count: int = 0

    def set_range(self, until: int | None, window: int) -> None:
        """Decide which new records of a partition may have killed its last owner."""
        # There are at most `window` of them. All are in the first uncut page, as the owner cannot have had later ones.
        # All records up to the id `until`, which a dead owner may have read, are suspects. `until` is None if the last
        # owner did not die.
        self._last_suspect_id = until or 0
        self.expected_count = window if self._last_suspect_id else 0

    def note_reread(self) -> None:
        """Record that the partition was read again, so that started events were started by this process."""
        # From now on, a parked row stored as started was started by this process, and not by a dead one.
        self._is_first_incarnation = False

    def includes(self, record_id: int) -> bool:
        """Return True if this new record may have killed the partition's last owner."""
        return self.expected_count > 0 and record_id <= self._last_suspect_id

    def mark_suspect(self, stored: StoredRow, row: ParkedRow) -> None:
        """Mark a set-aside event if it may have killed a process (suspect) or ran at a death (accused)."""
        # A parked row is accused if it was stored as started by a dead process. A charge made by this process is
        # ignored.
        if stored.was_started and self._is_first_incarnation:
            self._accused.add(row.id)
        accused = stored.was_started and row.id in self._accused
        row.attempts -= stored.was_started and not accused
        if stored.was_started or row.id <= self._last_suspect_id:
            row.mark_suspect(accused=accused)

    def note_charged(self, row: ParkedRow) -> None:
        """Record that an attempt of this event was saved before its run."""
        # The committed attempt (the charge of the row) counts for this owner from now on.
        row.attempts += 1
        self._accused.discard(row.id)
