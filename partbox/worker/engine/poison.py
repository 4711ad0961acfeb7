"""The search for the event that killed a process. Everything here needs the engine's lock.

The next owner of a partition cannot know which record after the saved cursor killed the last one. So it parks each of
them as a suspect, and *charges* it before it runs: one fenced save raises its attempts and notes its start.
If this process dies too, the rows with a noted start are *accused*. Each accused row runs with no other charged row
beside it, so from then on only the attempts of the culprit rise. A handler that hangs would keep all others from their
turns in this way, so a charged row stays alone for a bounded time, which doubles with its attempts."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from partbox.protocol.parking import ParkedRow
from partbox.worker.engine.key import Key
from partbox.worker.engine.partition import Partition

# Charged rows that have ended and are not saved. A death accuses them too, and then each runs alone.
MAX_UNSAVED = 32
# Seconds. A charged row keeps others from running for so long at its first attempt, and for twice as long at each
# further one. An event that kills its process later than that may have others charged beside it, but sooner or later it
# is alone for long enough.
ALONE_SECONDS = 1.0
MOST_ALONE_SECONDS = 64.0


class _ChargedRow(NamedTuple):
    row: ParkedRow
    partition: Partition
    incarnation: int
    was_accused: bool
    # Monotonic seconds.
    alone_until: float

    @property
    def is_at_risk(self) -> bool:
        """True if this event would be accused of killing the process, should the process die now."""
        # A row of a partition that was lost or read again is judged there.
        partition, row = self.partition, self.row
        if partition.is_lost or partition.incarnation != self.incarnation:
            return False
        return row.is_charged or row.is_unsaved or row.id in partition.parked.unsaved_deletions


class _WaitingKey(NamedTuple):
    partition: Partition
    incarnation: int
    key: Key


class Charges:
    """The turns of events that may have killed a process, of which only a few or a single one may run at once.

    An attempt of such an event is saved (charged) before it runs. At most `limit` charged rows run at once, and an
    accused row runs alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Monotonic seconds.
        self._now = 0.0
        # Rows that run, or have ended and are not saved.
        self._charged_rows: list[_ChargedRow] = []
        self._accused_keys: dict[_WaitingKey, None] = {}
        self._other_keys: dict[_WaitingKey, None] = {}
        # Returns the ids of charged records that wait for a permit under a limit, and so do not run.
        self.list_waiting_ids: Callable[[], Collection[int]] = tuple
        # Partitions with waiting suspects that block nothing, and whether one of them is accused.
        self.keyless_partitions: dict[int, bool] = {}

    def advance_clock(self, now: float) -> None:
        """Set the clock by which a charged row stays alone to `now` (monotonic seconds)."""
        self._now = max(now, self._now)

    @property
    def has_waiting(self) -> bool:
        """True if an event that may have killed a process waits for its turn to run."""
        # An attempt is saved for it (it is charged) before it runs.
        return bool(self._accused_keys or self._other_keys or self.keyless_partitions)

    def admit_suspect(self, partition: Partition, key: Key | None, row: ParkedRow) -> bool:
        """Return True if an event that may have killed a process may run now. Otherwise let it wait for its turn."""
        # A start stays noted until the outcome is saved, so a death also accuses events that ended shortly before.
        # Therefore an accused row waits for the saves of all others, and all others wait for its save. At its maximum
        # of attempts the culprit is dead without another run. An innocent event never dies this way, because it is done
        # after its turn.
        # The row is a suspect. True starts its trial, and False lets its key wait. `key` is None for a row that blocks
        # nothing. `take_next_trials` and `take_keyless` return the keys and partitions whose turn has come.
        self._prune_charged()
        free = not self._accused_keys and not any(self.keyless_partitions.values()) and self._count_room() > 0
        if not self._has_row_alone() if row.is_accused else free:
            deaths = row.attempts - 1 if row.is_accused else 0
            until = self._now + min(MOST_ALONE_SECONDS, ALONE_SECONDS * 2 ** min(deaths, 10))
            self._charged_rows.append(_ChargedRow(row, partition, partition.incarnation, row.is_accused, until))
            row.start_trial()
            return True
        if key is None:
            self.keyless_partitions[partition.number] = row.is_accused or self.keyless_partitions.get(
                partition.number, False
            )
        else:
            (self._accused_keys if row.is_accused else self._other_keys)[
                _WaitingKey(partition, partition.incarnation, key)
            ] = None
        return False

    def take_next_trials(self) -> Iterator[tuple[Partition, Key]]:
        """Remove and yield the keys whose turn has come to run an event that may have killed a process."""
        # These keys are blocked by suspects that may be charged. Accused events, recorded as running at a death, come
        # first.
        self._prune_charged()
        if self._accused_keys:
            if not self._has_row_alone():
                yield from _take_next(self._accused_keys, 1)
        else:
            yield from _take_next(self._other_keys, self._count_room())

    def take_keyless(self) -> set[int]:
        """Remove and return the partitions whose turn has come to run events that may have killed a process."""
        # The suspect rows of the partitions block nothing, and may be charged now.
        self._prune_charged()
        accused = bool(self._accused_keys) or any(self.keyless_partitions.values())
        if self._has_row_alone() if accused else not self._count_room():
            return set()
        taken, self.keyless_partitions = set(self.keyless_partitions), {}
        return taken

    def _has_row_alone(self, *, accused_only: bool = False) -> bool:
        # True if a charged row keeps others from running: an accused row any other, and each charged row the accused.
        # One that has ended does so until its outcome is saved, because a death before would accuse it.
        rows = (each for each in self._charged_rows if each.was_accused or not accused_only)
        return any(self._now < each.alone_until or not each.row.is_charged for each in rows)

    def _count_room(self) -> int:
        if self._has_row_alone(accused_only=True):
            return 0
        waiting = self.list_waiting_ids()
        at_risk = [each.row for each in self._charged_rows if each.row.id not in waiting]
        running = sum(row.is_charged for row in at_risk)
        return max(0, min(self._limit - running, self._limit + MAX_UNSAVED - len(at_risk)))

    def _prune_charged(self) -> None:
        self._charged_rows = [each for each in self._charged_rows if each.is_at_risk]


def _take_next(waiting: dict[_WaitingKey, None], most: int) -> Iterator[tuple[Partition, Key]]:
    while waiting and most > 0:
        first = next(iter(waiting))
        del waiting[first]
        partition, incarnation, key = first
        if not partition.is_stopping and partition.incarnation == incarnation and key in partition.parked.chains:
            most -= 1
            yield partition, key
