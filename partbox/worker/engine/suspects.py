"""The records of one partition that may have killed its last owner."""

from dataclasses import dataclass, field

from partbox.protocol.parking import ParkedRow
from partbox.protocol.rows import StoredRow


@dataclass(slots=True)
class Suspects:
    """The new records of a partition whose events may have killed the process of its last owner.

    They end at the last id that the owner had read. `expected_count` is the number that may still come. The caller
    holds the lock."""

    # Rows that a dead owner had charged, and this owner has not.
    _accused: set[int] = field(default_factory=set)
    _is_first_incarnation: bool = True
    _last_suspect_id: int = 0
    expected_count: int = 0

    def set_range(self, until: int | None, window: int) -> None:
        """Set which new records of a partition may have killed its last owner: all up to the id `until`."""
        # There are at most `window` of them. All are in the first uncut page, as the owner cannot have had later ones.
        # All records up to the id `until`, which a dead owner may have read, are suspects. `until` is None if the last
        # owner did not die.
        self._last_suspect_id = until or 0
        self.expected_count = window if self._last_suspect_id else 0

    def note_reread(self) -> None:
        """Record that the partition was read again, so that events started since are not blamed on a dead process."""
        # Started events were then started by this process.
        # From now on, a parked row stored as started was started by this process, and not by a dead one.
        self._is_first_incarnation = False

    def includes(self, record_id: int) -> bool:
        """Return True if this new record may have killed the partition's last owner."""
        return self.expected_count > 0 and record_id <= self._last_suspect_id

    def note_passed(self, record_id: int) -> None:
        """Count a new record that the read position has passed, which may be one of the expected records."""
        self.expected_count -= self.includes(record_id)

    def mark_suspect(self, stored: StoredRow, row: ParkedRow) -> None:
        """Mark an event that may have killed a process, or that was running when a process died."""
        # The event is a suspect in the first case, and accused in the second. It is parked.
        # A parked row is accused if it was stored as started by a dead process. A charge made by this process is
        # ignored.
        if stored.was_started and self._is_first_incarnation:
            self._accused.add(row.id)
        accused = stored.was_started and row.id in self._accused
        row.attempts -= stored.was_started and not accused
        if stored.was_started or row.id <= self._last_suspect_id:
            row.mark_suspect(accused=accused)

    def note_charged(self, row: ParkedRow) -> None:
        """Count an attempt that was committed to the database before its event runs."""
        # The committed attempt (the charge of the row) counts for this owner from now on.
        row.attempts += 1
        self._accused.discard(row.id)
