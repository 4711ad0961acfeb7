"""The work that a subscription has left, and the decision whether to wait for it."""

from dataclasses import dataclass

# Seconds. A scheduled event that is due later than this does not count as work yet.
SOON = 2.0
# Seconds for which a node with `--until-empty` continues although nothing is finished. Longer than a lease.
IDLE_PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class OutstandingWork:
    """The work that a subscription has not finished yet, as saved in the database."""

    # `has_unread` is True if there are records to read. `may_move` is True if a partition has no owner at the moment or
    # a handler has run for long, so that a lack of progress does not prove a standstill. `cursor_sum` is the sum of all
    # cursors, `unfinished` and `scheduled` count parked rows. One of the three changes whenever an event is finished.
    # `due_in` and `scheduled_in` are the seconds until the first row may run, or None if no row will run by itself.

    is_paused: bool = False
    has_unread: bool = False
    may_move: bool = False
    cursor_sum: str = ""
    unfinished: int = 0
    scheduled: int = 0
    due_in: float | None = None
    scheduled_in: float | None = None

    @property
    def is_done(self) -> bool:
        """True if the subscription has finished: only dead, discarded and scheduled events are left."""
        return not self.has_unread and not self.unfinished

    @property
    def progress_mark(self) -> tuple[str, int, int]:
        """A value that changes whenever the subscription finishes an event."""
        # A standstill is noticed by it.
        return self.cursor_sum, self.unfinished, self.scheduled

    def can_progress(self, patience: float) -> bool:
        """Return True if some unfinished event of the subscription may run within `patience` seconds."""
        # A scheduled event must also be due soon.
        if self.is_paused or patience <= 0:
            return False
        if self.has_unread or (self.due_in is not None and self.due_in <= patience):
            return True
        return self.scheduled_in is not None and self.scheduled_in <= min(patience, SOON)


class Standstill:
    """A stopwatch for the time in which a subscription has finished no event."""

    def __init__(self) -> None:
        self._progress: tuple[str, int, int] | None = None
        self._since = 0.0

    def is_over(self, work: OutstandingWork, patience: float, now: float) -> bool:
        """Return True if no event of the subscription can run within `patience` seconds after the last finished one."""
        # Waiting for the subscription is then pointless. The seconds count anew from each finished event.
        if work.may_move or work.progress_mark != self._progress:
            self._progress, self._since = work.progress_mark, now
        return not work.can_progress(self._since + patience - now)
