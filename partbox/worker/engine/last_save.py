"""The last save and the last progress note of a partition: the part of its progress that the database knows."""

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

# Seconds from one progress note to the next.
NOTE_EVERY = 60.0


# No count of finished records is negative, so a partition with this value needs a progress note.
NO_COUNT: Final = -1


class LastNote(NamedTuple):
    """The last progress note of a partition: a database row that records how far the partition was read.

    Such a row is written at most once in a while. `due_at` is the time at which the next note is due."""

    # When the next note is due, in monotonic seconds, or infinity if no notes are written.
    due_at: float
    # The number of records that were finished at that time.
    finished_count: int = 0

    def needs_next_note(self, finished: int, now: float, *, release: bool) -> bool:
        """Return True if the next save must also record how far the partition was read (a progress note)."""
        # Records must have been finished since the last note, and the next note must be due or the partition be
        # released.
        return finished != self.finished_count and self.due_at < inf and (release or now >= self.due_at)

    @classmethod
    def from_time(cls, now: float, finished: int = 0) -> "LastNote":
        # The note is written by a save or by the claim of the partition.
        return cls(now + NOTE_EVERY, finished)


@dataclass(slots=True)
class LastSave:
    """The last committed save of a partition: its time, record id and progress note.

    `is_in_flight` is True while another save is not yet committed."""

    # Monotonic seconds.
    saved_at: float
    last_id: int
    note: LastNote
    # The number of records that this process had finished when the save was gathered.
    finished_count: int = 0
    # True if another save is gathered and not committed. The content of the database is uncertain then.
    is_in_flight: bool = False

    def restart(self, now: float, last_id: int) -> "LastSave":
        """Return the record of the last save for a partition that is read again from its saved position."""
        # Nothing is finished yet. A progress note that was still to be written stays due.
        # If records are saved and not noted, or perhaps saved, the release still owes a note.
        owed = self.is_in_flight or self.finished_count != self.note.finished_count
        return LastSave(now, last_id, LastNote(self.note.due_at, NO_COUNT if owed else 0))
