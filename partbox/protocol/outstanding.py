"""The work that a subscription has still to do, and the decision whether it is worth waiting for."""

from dataclasses import dataclass

SOON = 2.0
"""Seconds: a scheduled event that is due later does not count as work yet."""
IDLE_PATIENCE = 30.0
"""Seconds for which a node goes on under `--until-empty` while nothing gets finished; longer than a lease."""


@dataclass(frozen=True, slots=True)
class OutstandingWork:
    """The unfinished work of a subscription, as it is saved.

    `unread`: records are to be read. `moving`: a partition has no owner at this moment, or a handler has run for long,
    so nothing finished proves no standstill. One of `cursors`, `unfinished` and `scheduled` changes whenever an event
    is finished: the sum of all cursors, and the numbers of parked rows. `due_in` and `scheduled_in`: seconds until one
    of these rows may run, None if none does by itself.
    """

    paused: bool = False
    unread: bool = False
    moving: bool = False
    cursors: str = ""
    unfinished: int = 0
    scheduled: int = 0
    due_in: float | None = None
    scheduled_in: float | None = None

    @property
    def is_done(self) -> bool:
        """True if no event is left but dead, discarded and scheduled ones."""
        return not self.unread and not self.unfinished

    @property
    def progress(self) -> tuple[str, int, int]:
        """A value that differs once an event is finished."""
        return self.cursors, self.unfinished, self.scheduled

    def can_progress(self, patience: float) -> bool:
        """True if something of it may run within so many seconds; a scheduled event must be due soon besides."""
        if self.paused or patience <= 0:
            return False
        if self.unread or (self.due_in is not None and self.due_in <= patience):
            return True
        return self.scheduled_in is not None and self.scheduled_in <= min(patience, SOON)


class Standstill:
    """Measures for how long nothing of a subscription has been finished."""

    def __init__(self) -> None:
        self._progress: tuple[str, int, int] | None = None
        self._since = 0.0

    def is_over(self, work: OutstandingWork, patience: float, now: float) -> bool:
        """True if nothing of it runs before the patience ends, which begins anew with all that is finished."""
        if work.moving or work.progress != self._progress:
            self._progress, self._since = work.progress, now
        return not work.can_progress(self._since + patience - now)
