"""Ownership in memory: which partitions this process holds, and what becomes of them from claim to release or loss.

The database decides who owns what (⛨ DESIGN 5). Here its answers are noted: a row that is mine begins a tenure, a new
epoch begins another one, and a partition that the database has given to others is lost. One that is lost while its
handlers run stays as the predecessor of its next tenure, which reads nothing until they have ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from partbox.protocol.rows import LooseRows, Owned, SeenPartition, Stored
from partbox.worker.engine.lock import verb
from partbox.worker.engine.partition import Partition, Tenure
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.state import EngineState


class HeldTenure(NamedTuple):
    """A tenure at one moment. `leaving`: its release is on its way, so the database may have it from nobody."""

    tenure: Tenure
    phase: Phase
    leaving: bool
    parked_version: int


class Lost(NamedTuple):
    """The numbers of the partitions that were lost just now, by what they did before."""

    running: list[int]
    draining: list[int]


class Taken(NamedTuple):
    """The answer to `take_up`: tenures that ended, that go on under a new epoch, and that begin."""

    lost: Lost
    kept: list[Owned]
    new: list[Owned]


class ParkedIndex(NamedTuple):
    """Parked rows of some partitions as stored: those that block, those that do not, and those ahead of the cursor."""

    blocking: Sequence[Stored]
    loose: Mapping[int, LooseRows]
    ahead: Sequence[tuple[int, int]]


class Loading(NamedTuple):
    """Partitions whose parked rows are about to be read, with the saves that had changed their rows by then."""

    changes: Mapping[Partition, int]
    needs_ahead: bool
    """Some are not known at all: what is parked ahead of the saved cursor is to be read too."""


class Claims:
    """The verbs of ownership. Each is one section: runners, poller and saver see a partition before it or after it.

    `settled` is read without the lock: when the last tick left nothing to be done, and nothing was lost since.
    """

    def __init__(self, state: EngineState, *, window: int, letters: bool, notes: bool = False) -> None:
        self._state = state
        self._lock = state.lock
        self._window = window
        self._letters = letters
        self._notes = notes
        self.settled = False

    @verb  # the saver drops what it has released
    def held(self) -> list[HeldTenure]:
        """Every tenure, the lost ones that still run too."""
        return [
            HeldTenure(each.tenure, each.phase, each.draining and each.last_save.under_way, each.parked.version)
            for each in self._state.partitions.values()
        ]

    @verb  # as `held`
    def numbers(self) -> set[int]:
        """The partitions that are mine."""
        return {number for number, each in self._state.partitions.items() if not each.lost}

    @verb  # as `held`
    def holds(self, number: int) -> bool:
        """True if the partition is mine, or was lost and its handlers run."""
        return number in self._state.partitions

    def count(self) -> int:
        """The number of those that are held; read without the lock, out of date at once."""
        return len(self._state.partitions)

    @verb  # one moment ends all that was read, and begins what is read from here on
    def take_up(self, rows: Sequence[Owned], now: float) -> Taken:
        """Hold just these, each from its saved cursor: after a lost connection (⛨ DESIGN 4), or as another instance."""
        mine = {row.partition for row in rows}
        held = self._state.partitions
        lost = self._lose([each for each in held.values() if each.number not in mine])
        kept = [row for row in rows if row.partition in held and not held[row.partition].lost]
        new = [row for row in rows if row.partition not in held or held[row.partition].lost]
        for row in kept:
            held[row.partition].reset(now)
            held[row.partition].begin(row, now)
        self._adopt(new, now)
        self._state.owned(now)
        return Taken(lost, kept, new)

    @verb  # the saver goes through the partitions
    def adopt(self, rows: Iterable[Owned], now: float) -> None:
        """Begin a tenure for each of these rows, which were claimed, or found to be mine."""
        self._adopt(rows, now)
        self._state.owned(now)

    @verb  # the saver gathers it either held or lost, and no tick is settled without it
    def lose(self, tenures: Iterable[Tenure]) -> Lost:
        """End these tenures, unless they have ended. Of one whose handlers run the partition stays until they end."""
        held = self._state.partitions
        return self._lose([held[each.number] for each in tenures if self._is_held(each)])

    @verb  # a release is gathered of what has begun to drain
    def drain(self, numbers: Iterable[int], now: float) -> None:
        """Start to give these up; one that may not drain yet (`Partition.may_drain`) waits for another call."""
        self._drain([self._state.partitions[number] for number in numbers if number in self._state.partitions], now)

    @verb  # as `drain`
    def drain_all(self, now: float) -> None:
        """Start to give up everything, as `drain` does."""
        self._drain(self._state.partitions.values(), now)

    @verb  # nothing is lost between the look at it and the word that all is settled
    def settle(self, rows: Sequence[SeenPartition], dues: Mapping[int, float]) -> None:
        """Note what a tick has shown, when it has been answered, and forget what has ended.

        `dues`: seconds until the first row is due that blocks nothing. Settled: I hold just these rows, and as long as
        they say the same there is nothing to do about them.
        """
        held = self._state.partitions
        for number, partition in list(held.items()):
            partition.parked.due_read |= dues.get(number, 1.0) > 0
            if not partition.has_running_predecessor:
                partition.predecessor = None
            self._drop_if_over(partition)
        same = {row.partition for row in rows} == held.keys()
        self.settled = same and all(_agrees(held[row.partition], row) for row in rows)

    # Parked rows.

    @verb  # what is read after this is compared with what was changed before it
    def loading(self, numbers: Collection[int]) -> Loading:
        """The parked rows of these are about to be read, after their claim has committed (EVIDENCE B6).

        While a save changes rows it cannot be told what is read: then another time.
        """
        held = [each for number, each in self._state.partitions.items() if number in numbers]
        sure = [each for each in held if not each.lost and not each.last_save.under_way]
        return Loading({each: each.parked.changes for each in sure}, any(not each.parked.known for each in held))

    @verb  # nothing new runs before all that blocks it is known
    def loaded(self, loading: Loading, rows: ParkedIndex, versions: Mapping[int, int], now: float) -> set[int]:
        """Take over what was read since `loading`, of these versions; those of which it is sure."""
        sure = {
            each.number: each
            for each, changes in loading.changes.items()
            if each.parked.changes == changes and not each.last_save.under_way
        }
        for number, record_id in rows.ahead:
            if number in sure and not sure[number].parked.known:
                sure[number].parked.ahead.add(record_id)
        for number, partition in sure.items():
            blocking = [row for row in rows.blocking if row.partition == number]
            keys = partition.parked.load(blocking, rows.loose.get(number, LooseRows()), now)
            for key in keys:
                self._state.wake(partition, key)
            if partition.parked.early:
                self._state.early.add(number)
            if partition.parked.pending:
                self._state.touch(partition)
            self._state.hold_behind(partition, keys)
            partition.loaded(versions[number])
        return set(sure)

    # Lock held.

    def _is_held(self, tenure: Tenure) -> bool:
        partition = self._state.partitions.get(tenure.number)
        return partition is not None and partition.epoch == tenure.epoch

    def _adopt(self, rows: Iterable[Owned], now: float) -> None:
        for row in rows:
            partition = Partition(row, now, window=self._window, letters=self._letters, notes=self._notes)
            before = self._state.partitions.get(row.partition)
            partition.predecessor = before if before is not None and before.busy else None
            self._state.partitions[row.partition] = partition

    def _lose(self, partitions: Iterable[Partition]) -> Lost:
        lost = Lost([], [])
        for partition in partitions:
            if not partition.lost:
                (lost.draining if partition.draining else lost.running).append(partition.number)
            self.settled = False  # if the database still says that it is mine, the next tick must hear it
            partition.lose()
            self._state.dirty.discard(partition)
            self._drop_if_over(partition)
        if lost.running:
            self._state.owned(None)
        return lost

    def _drain(self, partitions: Iterable[Partition], now: float) -> None:
        for partition in partitions:
            if not partition.stopping and partition.may_drain(now):
                partition.drain()
                self._state.touch(partition)
        self._state.owned(now)

    def _drop_if_over(self, partition: Partition) -> None:
        if partition.lost and not partition.busy:
            self._state.drop(partition)


def _agrees(partition: Partition, row: SeenPartition) -> bool:
    """True if a partition is what its row says, and runs."""
    parked = partition.parked
    runs = partition.phase is Phase.RUNNING and partition.predecessor is None and parked.due_read
    is_mine = row.assigned and row.owned and row.epoch == partition.epoch
    return runs and is_mine and parked.version >= row.parked_version
