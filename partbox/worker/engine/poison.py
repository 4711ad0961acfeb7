"""Finds out which event killed a process: in a partition freed by a bury, what may have been running is charged first.

The next owner cannot know which of the records after the saved cursor killed its predecessor. So each of them is parked
first, and *charged* when its turn comes (DESIGN 7): one fenced call raises its attempts, notes the start, and is the
attempt. If this process dies too, the rows with a start are *accused*: the few that ran, the culprit among them. Each
of those runs with no other charged record beside it, so from then on only the culprit's attempts rise; at its max
attempts it is dead without being run. No innocent is, for it is done after its turn.

A start stays noted until the save of the outcome has committed: a death accuses also what has ended shortly before it.
So an accused one waits for the saves of all others, and all others wait for its own.

Every method wants the lock of the engine held.
"""

from collections.abc import Iterator
from typing import NamedTuple

from partbox.protocol.parking import ParkedRow
from partbox.worker.engine.key import Key
from partbox.worker.engine.partition import Partition

MAX_UNSAVED = 32  # so many that have ended may be unsaved: one death accuses them too, and then each runs alone


class _ChargedRow(NamedTuple):
    row: ParkedRow
    partition: Partition
    incarnation: int
    accused: bool

    @property
    def is_at_risk(self) -> bool:
        """Would a death now accuse it? Not if its partition is lost or was read anew: that is judged there."""
        partition, row = self.partition, self.row
        if partition.lost or partition.incarnation != self.incarnation:
            return False
        return row.charged or row.unsaved or row.id in partition.parked.deleting


class _WaitingKey(NamedTuple):
    partition: Partition
    incarnation: int
    key: Key


class Charges:
    """The charged rows of one process that run now: at most `limit`, an accused one alone; and who waits for a turn."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._charged: list[_ChargedRow] = []  # running, or ended and not saved
        self._accused: dict[_WaitingKey, None] = {}
        self._others: dict[_WaitingKey, None] = {}
        # The partitions with suspects that block nothing and had no turn yet: whether one of these is accused.
        self.keyless: dict[int, bool] = {}

    @property
    def waiting(self) -> bool:
        """Does any suspect wait for its turn?"""
        return bool(self._accused or self._others or self.keyless)

    def admit(self, partition: Partition, key: Key | None, row: ParkedRow) -> bool:
        """May this suspect be charged and run now? If not it waits, and `take_next_trials` tells when."""
        self._prune()
        free = not self._accused and not any(self.keyless.values()) and self._count_room() > 0
        if not self._charged if row.accused else free:
            row.start_trial()
            self._charged.append(_ChargedRow(row, partition, partition.incarnation, row.accused))
            return True
        if key is None:
            self.keyless[partition.number] = row.accused or self.keyless.get(partition.number, False)
        else:
            (self._accused if row.accused else self._others)[_WaitingKey(partition, partition.incarnation, key)] = None
        return False

    def take_next_trials(self) -> Iterator[tuple[Partition, Key]]:
        """The blocked keys whose turn may have come."""
        self._prune()
        if self._accused:
            if not self._charged:
                yield from _take_next(self._accused, 1)
        else:
            yield from _take_next(self._others, self._count_room())

    def take_keyless(self) -> set[int]:
        """The partitions whose suspects that block nothing may have a turn now."""
        self._prune()
        accused = bool(self._accused) or any(self.keyless.values())
        if self._charged if accused else not self._count_room():
            return set()
        taken, self.keyless = set(self.keyless), {}
        return taken

    def _count_room(self) -> int:
        """For so many more that are not accused."""
        if any(each.accused for each in self._charged):
            return 0
        running = sum(each.row.charged for each in self._charged)
        return max(0, min(self._limit - running, self._limit + MAX_UNSAVED - len(self._charged)))

    def _prune(self) -> None:
        self._charged = [each for each in self._charged if each.is_at_risk]


def _take_next(waiting: dict[_WaitingKey, None], most: int) -> Iterator[tuple[Partition, Key]]:
    while waiting and most > 0:
        first = next(iter(waiting))
        del waiting[first]
        partition, incarnation, key = first
        if not partition.is_stopping and partition.incarnation == incarnation and key in partition.parked.chains:
            most -= 1
            yield partition, key
