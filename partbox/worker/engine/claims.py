"""Ownership in memory: which partitions this process holds, and what becomes of them from claim to release or loss.

The database decides who owns what (⛨ DESIGN 5). Here its answers are noted: a row that is mine begins a tenure, a new
epoch begins another one, and a partition that the database has given to others is lost. One that is lost while its
handlers run stays as the predecessor of its next tenure, which reads nothing until they have ended.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from partbox.protocol.rows import LooseRows, OwnedPartition, StoredRow, TickPartition
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Partition, Tenure
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.state import EngineState


class OwnedTenure(NamedTuple):
    """A tenure at one moment. `is_releasing`: its release is on its way, so the database may have it from nobody."""

    tenure: Tenure
    phase: Phase
    is_releasing: bool
    parked_version: int


class LostPartitions(NamedTuple):
    """The numbers of the partitions that were lost just now, by what they did before."""

    running: list[int]
    draining: list[int]


class TakenUp(NamedTuple):
    """The answer to `take_up`: tenures that ended, that go on under a new epoch, and that begin."""

    lost: LostPartitions
    kept: list[OwnedPartition]
    new: list[OwnedPartition]


class ParkedIndex(NamedTuple):
    """Parked rows of some partitions as stored: those that block, those that do not, and those ahead of the cursor."""

    blocking: Sequence[StoredRow]
    loose: Mapping[int, LooseRows]
    ahead: Sequence[tuple[int, int]]


class ParkedLoad(NamedTuple):
    """Partitions whose parked rows are about to be read, with the saves that had changed their rows by then."""

    changes: Mapping[Partition, int]
    needs_ahead: bool
    """Some are not known at all: what is parked ahead of the saved cursor is to be read too."""


class Claims:
    """The verbs of ownership. Each is one section: runners, poller and saver see a partition before it or after it.

    `settled` is read without the lock: when the last tick left nothing to be done, and nothing was lost since.
    """

    def __init__(self, state: EngineState, *, window: int, dead_letters: bool, notes: bool = False) -> None:
        self._state = state
        self._lock = state.lock
        self._window = window
        self._dead_letters = dead_letters
        self._notes = notes
        self.settled = False

    @under_lock  # the saver drops what it has released
    def owned(self) -> list[OwnedTenure]:
        """Every tenure, the lost ones that still run too."""
        return [
            OwnedTenure(each.tenure, each.phase, each.draining and each.last_save.is_in_flight, each.parked.version)
            for each in self._state.partitions.values()
        ]

    @under_lock  # as `owned`
    def numbers(self) -> set[int]:
        """The partitions that are mine."""
        return {number for number, each in self._state.partitions.items() if not each.lost}

    @under_lock  # as `owned`
    def is_known(self, number: int) -> bool:
        """True if the partition is mine, or was lost and its handlers run."""
        return number in self._state.partitions

    def count(self) -> int:
        """The number of those that are held; read without the lock, out of date at once."""
        return len(self._state.partitions)

    @under_lock  # one moment ends all that was read, and begins what is read from here on
    def take_up(self, rows: Sequence[OwnedPartition], now: float) -> TakenUp:
        """Hold just these, each from its saved cursor: after a lost connection (⛨ DESIGN 4), or as another instance."""
        mine = {row.partition for row in rows}
        owned = self._state.partitions
        lost = self._lose([each for each in owned.values() if each.number not in mine])
        kept = [row for row in rows if row.partition in owned and not owned[row.partition].lost]
        new = [row for row in rows if row.partition not in owned or owned[row.partition].lost]
        for row in kept:
            owned[row.partition].reset(now)
            owned[row.partition].begin(row, now)
        self._adopt(new, now)
        self._state.owned(now)
        return TakenUp(lost, kept, new)

    @under_lock  # the saver goes through the partitions
    def adopt(self, rows: Iterable[OwnedPartition], now: float) -> None:
        """Begin a tenure for each of these rows, which were claimed, or found to be mine."""
        self._adopt(rows, now)
        self._state.owned(now)

    @under_lock  # the saver gathers it either held or lost, and no tick is settled without it
    def lose(self, tenures: Iterable[Tenure]) -> LostPartitions:
        """End these tenures, unless they have ended. Of one whose handlers run the partition stays until they end."""
        owned = self._state.partitions
        return self._lose([owned[each.number] for each in tenures if self._is_current(each)])

    @under_lock  # a release is gathered of what has begun to drain
    def drain(self, numbers: Iterable[int], now: float) -> None:
        """Start to give these up; one that may not drain yet (`Partition.may_drain`) waits for another call."""
        self._drain([self._state.partitions[number] for number in numbers if number in self._state.partitions], now)

    @under_lock  # as `drain`
    def drain_all(self, now: float) -> None:
        """Start to give up everything, as `drain` does."""
        self._drain(self._state.partitions.values(), now)

    @under_lock  # nothing is lost between the look at it and the word that all is settled
    def note_tick(self, rows: Sequence[TickPartition], dues: Mapping[int, float]) -> None:
        """Note what a tick has shown, when it has been answered, and forget what has ended.

        `dues`: seconds until the first row is due that blocks nothing. Settled: I hold just these rows, and as long as
        they say the same there is nothing to do about them.
        """
        owned = self._state.partitions
        for number, partition in list(owned.items()):
            partition.parked.due_read |= dues.get(number, 1.0) > 0
            if not partition.has_running_predecessor:
                partition.predecessor = None
            self._drop_if_over(partition)
        same = {row.partition for row in rows} == owned.keys()
        self.settled = same and all(_matches_row(owned[row.partition], row) for row in rows)

    # Parked rows.

    @under_lock  # what is read after this is compared with what was changed before it
    def loading(self, numbers: Collection[int]) -> ParkedLoad:
        """The parked rows of these are about to be read, after their claim has committed (EVIDENCE B6).

        While a save changes rows it cannot be told what is read: then another time.
        """
        owned = [each for number, each in self._state.partitions.items() if number in numbers]
        certain = [each for each in owned if not each.lost and not each.last_save.is_in_flight]
        return ParkedLoad({each: each.parked.changes for each in certain}, any(not each.parked.known for each in owned))

    @under_lock  # nothing new runs before all that blocks it is known
    def loaded(self, loading: ParkedLoad, rows: ParkedIndex, versions: Mapping[int, int], now: float) -> set[int]:
        """Take over what was read since `loading`, of these versions; those of which it is sure."""
        certain = {
            each.number: each
            for each, changes in loading.changes.items()
            if each.parked.changes == changes and not each.last_save.is_in_flight
        }
        for number, record_id in rows.ahead:
            if number in certain and not certain[number].parked.known:
                certain[number].parked.ahead.add(record_id)
        for number, partition in certain.items():
            blocking = [row for row in rows.blocking if row.partition == number]
            keys = partition.parked.load(blocking, rows.loose.get(number, LooseRows()), now)
            for key in keys:
                self._state.wake(partition, key)
            if partition.parked.early:
                self._state.early.add(number)
            if partition.parked.pending:
                self._state.mark_dirty(partition)
            self._state.park_followers(partition, keys)
            partition.loaded(versions[number])
        return set(certain)

    # Lock held.

    def _is_current(self, tenure: Tenure) -> bool:
        partition = self._state.partitions.get(tenure.number)
        return partition is not None and partition.epoch == tenure.epoch

    def _adopt(self, rows: Iterable[OwnedPartition], now: float) -> None:
        for row in rows:
            partition = Partition(row, now, window=self._window, dead_letters=self._dead_letters, notes=self._notes)
            before = self._state.partitions.get(row.partition)
            partition.predecessor = before if before is not None and before.is_busy else None
            self._state.partitions[row.partition] = partition

    def _lose(self, partitions: Iterable[Partition]) -> LostPartitions:
        lost = LostPartitions([], [])
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
            if not partition.is_stopping and partition.may_drain(now):
                partition.drain()
                self._state.mark_dirty(partition)
        self._state.owned(now)

    def _drop_if_over(self, partition: Partition) -> None:
        if partition.lost and not partition.is_busy:
            self._state.drop(partition)


def _matches_row(partition: Partition, row: TickPartition) -> bool:
    """True if a partition is what its row says, and runs."""
    parked = partition.parked
    runs = partition.phase is Phase.RUNNING and partition.predecessor is None and parked.due_read
    is_mine = row.assigned and row.owned and row.epoch == partition.epoch
    return runs and is_mine and parked.version >= row.parked_version
