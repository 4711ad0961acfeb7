"""Who killed the process? In a partition freed by a bury, what may have been running then is charged before it runs.

The next owner cannot know which of the records after the saved cursor killed its predecessor. So each of them is parked
first, and *charged* when its turn comes: one fenced call raises its attempts and notes the start. The charge is the
attempt. If this process dies too, the rows with a start are *accused*: the few that ran, the culprit among them. Each
of those runs with no other charged record beside it, so from then on only the culprit's attempts rise; at its max
attempts it is dead without being run. No innocent is, for it is done after its turn.

Every method wants the lock of the holdings held.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from partbox.rules.parking import ParkedRow
from partbox.worker.lane import Key

if TYPE_CHECKING:
    from partbox.worker.partition import Partition


class _Charged(NamedTuple):
    row: ParkedRow
    partition: "Partition"
    life: int


class _Waiting(NamedTuple):
    partition: "Partition"
    life: int
    key: Key


class Charges:
    """The charged rows of one process that run now: at most `limit`, an accused one alone; and who waits for a turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._running: list[_Charged] = []
        self._accused: deque[_Waiting] = deque()
        self._others: deque[_Waiting] = deque()
        self.keyless: set[int] = set()  # partitions with suspects that block nothing, and had no turn yet

    def admit(self, partition: "Partition", key: Key | None, row: ParkedRow) -> bool:
        """May this suspect be charged and run now? If not it waits, and `turns` tells when."""
        self._prune()
        if self._turn_of(row):
            self._running.append(_Charged(row, partition, partition.life))
            return True
        if key is None:
            self.keyless.add(partition.number)
        else:
            (self._accused if row.accused else self._others).append(_Waiting(partition, partition.life, key))
        return False

    def discharge(self, row: ParkedRow) -> None:
        """It has ended, or does not run after all."""
        self._running = [each for each in self._running if each.row is not row]

    def turns(self) -> Iterator[tuple["Partition", Key]]:
        """The blocked keys whose turn may have come."""
        self._prune()
        if self._accused:
            if not self._running:
                yield from _next(self._accused, 1)
        elif not any(each.row.accused for each in self._running):
            yield from _next(self._others, self._limit - len(self._running))

    def take_keyless(self) -> set[int]:
        """The partitions whose suspects that block nothing may have a turn now."""
        self._prune()
        if self._accused or len(self._running) >= self._limit:
            return set()
        taken, self.keyless = self.keyless, set()
        return taken

    def _turn_of(self, row: ParkedRow) -> bool:
        if row.accused:
            return not self._running
        return (
            not self._accused
            and len(self._running) < self._limit
            and not any(each.row.accused for each in self._running)
        )

    def _prune(self) -> None:
        self._running = [each for each in self._running if not each.partition.lost and each.life == each.partition.life]


def _next(waiting: deque[_Waiting], most: int) -> Iterator[tuple["Partition", Key]]:
    while waiting and most > 0:
        partition, life, key = waiting.popleft()
        if not partition.stopping and partition.life == life and key in partition.chains:
            most -= 1
            yield partition, key
