"""The last save of one partition."""

from dataclasses import dataclass


@dataclass(slots=True)
class LastSave:
    """The time of its commit (monotonic seconds), and what of the partition the database knows by it. Lock held.

    `finished` counts the records that had been finished here when it was made. `under_way`: another has been gathered
    and is not committed, so that what the database knows cannot be told.
    """

    at: float
    last_id: int
    finished: int = 0
    under_way: bool = False

    def committed(self, at: float, last_id: int, finished: int) -> None:
        """The one under way is committed."""
        self.at, self.last_id, self.finished, self.under_way = at, last_id, finished, False
