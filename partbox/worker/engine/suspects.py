"""The records of one partition that may have killed its last owner."""

from dataclasses import dataclass, field

from partbox.protocol.parking import ParkedRow
from partbox.protocol.rows import StoredRow


@dataclass(slots=True)
class Suspects:
    """The suspects of one tenure: new records up to the last id that a dead owner had read. The caller holds the lock.
    There are at most as many suspects as its window held, all in the first uncut page, because the dead owner cannot
    have had any later record (DESIGN 7, poison). `left` is the number that may still come."""

    # Rows that a dead owner had charged, and this owner has not.
    _accused: set[int] = field(default_factory=set)
    _first_incarnation: bool = True
    _until: int = 0
    left: int = 0

    def begin(self, until: int | None, window: int) -> None:
        """Start to read from the saved cursor; `until` is None if the last owner did not die."""
        self._until = until or 0
        self.left = window if self._until else 0

    def note_reread(self) -> None:
        """Record that from now on a row that is stored as started was started by this process."""
        self._first_incarnation = False

    def includes(self, record_id: int) -> bool:
        """Return True if a new record with this id is a suspect."""
        return self.left > 0 and record_id <= self._until

    def mark_suspect(self, stored: StoredRow, row: ParkedRow) -> None:
        """Mark the row if it is suspect or accused, and ignore a charge made by this process."""
        if stored.started and self._first_incarnation:
            self._accused.add(row.id)
        accused = stored.started and row.id in self._accused
        row.attempts -= stored.started and not accused
        if stored.started or row.id <= self._until:
            row.mark_suspect(accused=accused)

    def charged(self, row: ParkedRow) -> None:
        """Record that the row's charge is committed, and counts for this owner from now on."""
        row.attempts += 1
        self._accused.discard(row.id)
