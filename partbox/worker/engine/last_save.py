"""The last save and the last progress note of a partition: the part of its progress that the database knows."""

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

# Seconds from one progress note to the next.
NOTE_EVERY = 60.0


# Differs from every number of finished records, so that a note is owed.
NO_COUNT: Final = -1


class LastNote(NamedTuple):
    """The last progress note of a partition (a row, written at most once in a while, that records how far the partition
    was read), and the time of the next note."""

    # When the next note is due, in monotonic seconds, or infinity if no notes are written.
    due: float
    # The number of records that were finished at that time.
    finished: int = 0

    def is_over(self, finished: int, now: float, *, release: bool) -> bool:
        """Return True if the next save of the partition must include a progress note: records were finished since the
        last note, and the next note is due or the partition is released."""
        return finished != self.finished and self.due < inf and (release or now >= self.due)

    @classmethod
    def of(cls, now: float, finished: int = 0) -> "LastNote":
        """Return a progress note as written at `now`, by a save or by the claim of the partition, with the time at
        which the next note is due."""
        return cls(now + NOTE_EVERY, finished)


@dataclass(slots=True)
class LastSave:
    """The last committed save of a partition: its time, the saved record id, the progress note, and whether another
    save is not yet committed."""

    # Monotonic seconds.
    at: float
    last_id: int
    note: LastNote
    # The number of records that this process had finished when the save was gathered.
    finished: int = 0
    # True if another save is gathered and not committed. The content of the database is uncertain then.
    is_in_flight: bool = False

    def restart(self, now: float, last_id: int) -> "LastSave":
        """Return the last save to start from when a partition is read anew from its saved cursor, with nothing finished
        yet. A progress note that was still to be written stays due."""
        # If records are saved and not noted, or perhaps saved, the release still owes a note.
        owed = self.is_in_flight or self.finished != self.note.finished
        return LastSave(now, last_id, LastNote(self.note.due, NO_COUNT if owed else 0))
