"""The last save and the last progress note of a partition: the part of its progress that the database knows."""

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

# Seconds from one progress note to the next.
NOTE_EVERY = 60.0


# Differs from every number of finished records, so that a note is owed.
NO_COUNT: Final = -1


class LastNote(NamedTuple):
    """The last progress note of a partition."""

    # When the next note is due, in monotonic seconds, or infinity if no notes are written.
    due: float
    # The number of records that were finished at that time.
    finished: int = 0

    def is_over(self, finished: int, now: float, *, release: bool) -> bool:
        """Return whether the next save has a note: records were finished, and it is due or a release."""
        return finished != self.finished and self.due < inf and (release or now >= self.due)

    @classmethod
    def of(cls, now: float, finished: int = 0) -> "LastNote":
        """Return a note that is written now, or a claim's, with the time of the next note."""
        return cls(now + NOTE_EVERY, finished)


@dataclass(slots=True)
class LastSave:
    """The last committed save of a partition."""

    # Monotonic seconds.
    at: float
    last_id: int
    note: LastNote
    # The number of records that this process had finished when the save was gathered.
    finished: int = 0
    # True if another save is gathered and not committed. The content of the database is uncertain then.
    is_in_flight: bool = False

    def restart(self, now: float, last_id: int) -> "LastSave":
        """Return the last save for a partition that is read anew from its saved cursor, with nothing finished yet."""
        # If records are saved and not noted, or perhaps saved, the release still owes a note.
        owed = self.is_in_flight or self.finished != self.note.finished
        return LastSave(now, last_id, LastNote(self.note.due, NO_COUNT if owed else 0))
