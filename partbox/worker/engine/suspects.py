"""The records of one partition that may have killed the process that had it before."""

from dataclasses import dataclass, field

from partbox.protocol.parking import ParkedRow
from partbox.protocol.rows import StoredRow


@dataclass(slots=True)
class Suspects:
    """After a death, new records up to the last id that the dead process had read, no more than its window held.

    Only those of the first uncut page: what comes later it cannot have had (DESIGN 7, poison). Lock held.
    """

    _accused: set[int] = field(default_factory=set)  # charged by an owner that died, and not yet by this one
    _first_incarnation: bool = True
    _until: int = 0
    left: int = 0

    def begin(self, until: int | None, window: int) -> None:
        """The partition is read from its saved cursor; `until` is None where no process has died with it."""
        self._until = until or 0
        self.left = window if self._until else 0

    def note_reread(self) -> None:
        """From here on this very process has started what is stored as started."""
        self._first_incarnation = False

    def includes(self, record_id: int) -> bool:
        """True if this new record is suspect."""
        return self.left > 0 and record_id <= self._until

    def mark_suspect(self, stored: StoredRow, row: ParkedRow) -> None:
        """Note on the row if it is suspect or accused. What this very process charged did not kill it."""
        if stored.started and self._first_incarnation:
            self._accused.add(row.id)
        accused = stored.started and row.id in self._accused
        row.attempts -= stored.started and not accused
        if stored.started or row.id <= self._until:
            row.mark_suspect(accused=accused)

    def charged(self, row: ParkedRow) -> None:
        """The row's charge is committed: from here on it counts for this owner."""
        row.attempts += 1
        self._accused.discard(row.id)
