"""The last save of a partition, and the last note of its progress: so much of it the database knows."""

from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

NOTE_EVERY = 60.0  # seconds from one note of progress to the next


NO_COUNT: Final = -1  # a number of finished records that there is not


class LastNote(NamedTuple):
    """The last note of its progress: when the next is due (monotonic seconds), and how many records were finished.

    `due` is infinity where none is to be written.
    """

    due: float
    finished: int = 0

    def is_over(self, finished: int, now: float, *, release: bool) -> bool:
        """True if a save of so many finished records is to note them: it is time, or the partition is let go."""
        return finished != self.finished and self.due < inf and (release or now >= self.due)

    @classmethod
    def of(cls, now: float, finished: int = 0) -> "LastNote":
        """A note of now, or a claim."""
        return cls(now + NOTE_EVERY, finished)


@dataclass(slots=True)
class LastSave:
    """The last save of a partition: when it was committed (monotonic seconds), and what the database knows by it.

    `finished` counts the records that had been finished here when it was made. `is_in_flight`: another has been
    gathered and is not committed, so that what the database knows cannot be told.
    """

    at: float
    last_id: int
    note: LastNote
    finished: int = 0
    is_in_flight: bool = False

    def restart(self, now: float, last_id: int) -> "LastSave":
        """The last save where the partition is read anew from its saved cursor, and nothing is finished here yet.

        What is saved and not noted, or perhaps saved, is owed a note at the release all the same.
        """
        owed = self.is_in_flight or self.finished != self.note.finished
        return LastSave(now, last_id, LastNote(self.note.due, NO_COUNT if owed else 0))
