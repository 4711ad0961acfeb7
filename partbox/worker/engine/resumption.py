"""A lost connection: what was done and not saved, or ran, is found again and not started a second time.

The server may have lost a tail, and use ids and xids anew (⛨ DESIGN 4, EVIDENCE A9). So nothing of what was read is
believed, and what is remembered is told by id and event id: an id alone may be another event's by now.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from partbox.protocol.horizon import Page
from partbox.protocol.progress import Progress
from partbox.worker.engine.parked_rows import ParkedRows

RECHECK_SECONDS = 10.0
"""Seconds after a lost connection for which a partition that is asked for is kept, to find again what was done or ran
then (DESIGN 5). A few polls do that, unless it may not read: its window is full, or it has too many parked records."""

RecordIdentity = tuple[int, bytes]


@dataclass(slots=True)
class Resumption:
    """The memory of one partition across its incarnations, by (id, event id). Lock held, but to look into `remembered`.

    Kept until it is read again, or cannot come again: then the save of it had been committed after all.
    """

    remembered: set[RecordIdentity] = field(default_factory=set)
    _unconfirmed: set[RecordIdentity] = field(
        default_factory=set
    )  # of these: those that do not come again if their save committed
    done_to: int = 0  # what of the remembered is read up to here need not be handed over to be found done
    _reset_at: float | None = None
    read_to: int = 0  # what was done or ran when the connection was lost is found by reading up to here
    _parked_ids: set[int] = field(default_factory=set)  # of parked records that were done or in memory then

    def reset(self, progress: Progress, parked: ParkedRows, read_to: int, now: float) -> None:
        """The connection was lost when this had been done, and the log was read up to `read_to`."""
        if self._reset_at is None or now > self._reset_at + RECHECK_SECONDS:
            self._parked_ids.clear()
        self._reset_at = now
        self.remembered.update(progress.done(), parked.deleting.items())
        self._unconfirmed = set(self.remembered)
        self.done_to = max((id for id, _ in self.remembered), default=0)
        self.read_to = max(self.read_to, read_to)
        self._parked_ids.update(parked.list_in_memory())

    def is_over(self, parked: ParkedRows, read_to: float | None, now: float) -> bool:
        """True if all is found again, or there was time enough; `read_to` is None while nothing whole is read."""
        if self._reset_at is None or now > self._reset_at + RECHECK_SECONDS:
            return True
        if not parked.known or read_to is None or read_to < self.read_to:
            return False
        if self._parked_ids and not parked.due_read:
            return False
        return not any(row.id in self._parked_ids and not row.loaded for row in parked.list_blocking())

    def saved(self, page: Page, last_id: int, parked: ParkedRows) -> None:
        """A cursor is saved. Of what it has passed, and is not parked, nothing comes again: it was saved before.

        Not so of what ran when the connection was lost: read again it may be parked, and be done all the same. If the
        server has lost it with its tail, it is remembered until the next lost connection.
        """
        if not self._unconfirmed or not parked.known or not parked.due_read:
            return
        passed = min(page.floor, last_id)
        still_parked = parked.taken.keys() | {row.id for row in parked.list_blocking()}
        saved = {pair for pair in self._unconfirmed if pair[0] <= passed and pair[0] not in still_parked}
        self._unconfirmed -= saved
        self.forget(saved)

    def forget(self, pairs: Iterable[RecordIdentity]) -> None:
        """Forget pairs that were found again."""
        self.remembered.difference_update(pairs)
