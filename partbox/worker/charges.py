"""Who killed the process? In a partition freed by a bury, what may have been running then is charged before it runs.

The next owner cannot know which of the records after the saved cursor killed its predecessor. So each of them is parked
first, and *charged* when its turn comes: one fenced call raises its attempts and notes the start. The charge is the
attempt. If this process dies too, the rows with a start are *accused*: the few that ran, the culprit among them. Each
of those runs with no other charged record beside it, so from then on only the culprit's attempts rise; at its max
attempts it is dead without being run. No innocent is, for it is done after its turn.

Every method wants the lock of the holdings held.
"""

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
        self._accused: dict[_Waiting, None] = {}
        self._others: dict[_Waiting, None] = {}
        # The partitions with suspects that block nothing and had no turn yet: whether one of these is accused.
        self.keyless: dict[int, bool] = {}

    def admit(self, partition: "Partition", key: Key | None, row: ParkedRow) -> bool:
        """May this suspect be charged and run now? If not it waits, and `turns` tells when."""
        self._prune()
        if self._turn_of(row):
            row.charged = True
            self._running.append(_Charged(row, partition, partition.life))
            return True
        if key is None:
            self.keyless[partition.number] = row.accused or self.keyless.get(partition.number, False)
        else:
            (self._accused if row.accused else self._others)[_Waiting(partition, partition.life, key)] = None
        return False

    def turns(self) -> Iterator[tuple["Partition", Key]]:
        """The blocked keys whose turn may have come."""
        self._prune()
        if self._accused:
            if not self._running:
                yield from _next(self._accused, 1)
        elif self._has_room():
            yield from _next(self._others, self._limit - len(self._running))

    def take_keyless(self) -> set[int]:
        """The partitions whose suspects that block nothing may have a turn now."""
        self._prune()
        accused = bool(self._accused) or any(self.keyless.values())
        if self._running if accused else not self._has_room():
            return set()
        taken, self.keyless = set(self.keyless), {}
        return taken

    def _turn_of(self, row: ParkedRow) -> bool:
        if row.accused:
            return not self._running
        return not self._accused and not any(self.keyless.values()) and self._has_room()

    def _has_room(self) -> bool:
        """For one more that is not accused."""
        return len(self._running) < self._limit and not any(each.row.accused for each in self._running)

    def _prune(self) -> None:
        """However a turn has ended: the row done, parked anew or handed back, its partition lost or read anew."""
        self._running = [
            each
            for each in self._running
            if each.row.charged and not each.partition.lost and each.life == each.partition.life
        ]


def _next(waiting: dict[_Waiting, None], most: int) -> Iterator[tuple["Partition", Key]]:
    while waiting and most > 0:
        first = next(iter(waiting))
        del waiting[first]
        partition, life, key = first
        if not partition.stopping and partition.life == life and key in partition.chains:
            most -= 1
            yield partition, key
