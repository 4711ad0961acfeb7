"""Ownership in memory: the partitions that this process holds, from claim to release or loss. The database decides who
owns a partition, and this module records its answers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from partbox.protocol.parking import RowStage, RowState
from partbox.protocol.rows import LooseRows, OwnedPartition, StoredRow, StoredSpill, TickPartition
from partbox.worker.engine.evicted_rows import EvictedRow
from partbox.worker.engine.key import Key
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Partition, Tenure
from partbox.worker.engine.phase import Phase
from partbox.worker.engine.state import EngineState


class OwnedTenure(NamedTuple):
    """A snapshot of one period in which this process owns a partition, with the version of its failed and waiting
    events."""

    # The version is that of the parked rows.

    tenure: Tenure
    phase: Phase
    # True while the release is in flight, so that the partition may have no owner in the database.
    is_releasing: bool
    parked_version: int


class LostPartitions(NamedTuple):
    """The numbers of the partitions that this worker process has just lost, so that it no longer owns them."""

    # `running_numbers` are partitions that ran, and `draining_numbers` are partitions that were already draining for a
    # release.

    running_numbers: list[int]
    draining_numbers: list[int]


class OwnershipUpdate(NamedTuple):
    """The lost, kept and new partitions after `Claims.replace_owned` has updated the partitions that this process
    owns."""

    # A kept partition has a new epoch.

    lost: LostPartitions
    kept: list[OwnedPartition]
    new: list[OwnedPartition]


class ParkedIndex(NamedTuple):
    """The stored database rows of the failed or waiting (parked) events of some partitions."""

    # `blocking_rows` block their key, `loose_rows` block nothing, and `rows_ahead` are of records ahead of the saved
    # cursor.

    blocking_rows: Sequence[StoredRow]
    # By partition number.
    loose_rows: Mapping[int, LooseRows]
    # Partition numbers and record ids of rows that are parked ahead of the saved cursor.
    rows_ahead: Sequence[tuple[int, int]]
    spills: Sequence[StoredSpill] = ()


class ParkedLoad(NamedTuple):
    """The state at the start of a read of failed or waiting events, to notice changes made during the read."""

    # For each partition, `change_counts` has the number of saves that changed its parked rows.

    change_counts: Mapping[Partition, int]
    # True if a partition knows no rows at all. Rows parked ahead of its saved cursor must be read then.
    needs_ahead: bool


class Claims:
    """The in-memory record of the partitions that this worker process owns.

    Each method is a critical section, so no thread sees a partition half changed."""

    def __init__(
        self, state: EngineState, *, window: int, dead_letters: bool, spill_after: int, notes: bool = False
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._window = window
        self._dead_letters = dead_letters
        self._notes = notes
        self._spill_after = spill_after
        # True if the last tick left nothing to do and no partition was lost since. Read without the lock.
        self.is_settled = False

    # The saver drops the partitions that it has released.
    @under_lock
    def list_tenures(self) -> list[OwnedTenure]:
        """Return a snapshot of all partitions in memory, including lost partitions whose handlers still run."""
        return [
            OwnedTenure(each.tenure, each.phase, each.is_draining and each.last_save.is_in_flight, each.parked.version)
            for each in self._state.partitions.values()
        ]

    # The saver drops the partitions that it has released.
    @under_lock
    def list_numbers(self) -> set[int]:
        """Return the numbers of the partitions that this process owns."""
        return {number for number, each in self._state.partitions.items() if not each.is_lost}

    @under_lock
    def is_known(self, number: int) -> bool:
        """Return True if this process owns the partition, or has lost it while its handlers still run."""
        return number in self._state.partitions

    def count_partitions(self) -> int:
        """Return the number of partitions in memory."""
        # The lock is not taken.
        # The number may be outdated at once.
        return len(self._state.partitions)

    # One moment ends all that was read before, and begins all that is read from here on.
    @under_lock
    def replace_owned(self, rows: Sequence[OwnedPartition], now: float) -> OwnershipUpdate:
        """Set which partitions this process owns: exactly the partitions in these database rows."""
        # Each of them is read again from its saved cursor. All other partitions are lost.
        # Called after a lost connection, or when the process goes on as another instance.
        mine = {row.partition for row in rows}
        owned = self._state.partitions
        lost = self._lose([each for each in owned.values() if each.number not in mine])
        kept = [row for row in rows if row.partition in owned and not owned[row.partition].is_lost]
        new = [row for row in rows if row.partition not in owned or owned[row.partition].is_lost]
        for row in kept:
            owned[row.partition].reset(now)
            owned[row.partition].begin_reading(row, now)
        self._adopt(new, now)
        self._state.on_ownership_change(now)
        return OwnershipUpdate(lost, kept, new)

    # The saver goes through the partitions.
    @under_lock
    def adopt(self, rows: Iterable[OwnedPartition], now: float) -> None:
        """Add the partitions in these database rows to the partitions that this process owns."""
        # This worker process has claimed them, or was found to own them already.
        self._adopt(rows, now)
        self._state.on_ownership_change(now)

    # The saver must find each partition either owned or lost, and no tick is noted in between.
    @under_lock
    def lose(self, tenures: Iterable[Tenure]) -> LostPartitions:
        """Stop all work on partitions that this process no longer owns. Return the numbers of the lost partitions."""
        # If handlers of a lost partition still run, its object becomes the predecessor of the next tenure, in which
        # events of their keys wait until they have ended.
        # Ownerships that have ended already are ignored. A partition whose handlers run stays in memory until they end.
        owned = self._state.partitions
        return self._lose([owned[each.number] for each in tenures if self._is_current(each)])

    # The saver gathers a release from the partitions that have begun to drain.
    @under_lock
    def drain(self, numbers: Collection[int], now: float) -> None:
        """Stop starting handlers in these partitions, to release each partition when its running handlers have
        ended."""
        # The partitions are all that are assigned to other processes. One that may not drain yet (see `may_drain` and
        # `is_held_by_handler`) needs another call.
        ready = list[Partition]()
        for number, partition in self._state.partitions.items():
            if number not in numbers:
                partition.reassigned_at = None
                continue
            if partition.reassigned_at is None:
                partition.reassigned_at = now
            if not partition.is_held_by_handler(now):
                ready.append(partition)
        self._drain(ready, now)

    # The saver gathers a release from the partitions that have begun to drain.
    @under_lock
    def drain_all(self, now: float) -> None:
        """Stop starting handlers in all partitions, so that all can be released."""
        # A partition that may not drain yet needs another call. Handlers that have run for long delay nothing here,
        # because the process ends in any case.
        self._drain(self._state.partitions.values(), now)

    # No partition is lost between the comparison with the rows and the note that the tick is done.
    @under_lock
    def note_tick(self, rows: Sequence[TickPartition], dues: Mapping[int, float]) -> None:
        """Record whether the periodic check of partition ownership in the database left nothing to do."""
        # Lost partitions whose handlers have ended are dropped.
        owned = self._state.partitions
        for number, partition in list(owned.items()):
            # `dues` has the seconds until the first row of a partition is due that blocks nothing.
            partition.parked.has_read_due |= dues.get(number, 1.0) > 0
            if not partition.has_running_predecessor:
                partition.predecessor = None
            self._drop_if_over(partition)
        # As long as ticks return the same rows as a settled one, there is nothing to do about them.
        same = {row.partition for row in rows} == owned.keys()
        self.is_settled = same and all(_matches_row(owned[row.partition], row) for row in rows)

    # Rows that are read after this call are compared with the changes made before it.
    @under_lock
    def begin_loading(self, numbers: Collection[int]) -> ParkedLoad:
        """Take a snapshot of these partitions before their failed or waiting events are read from the database."""
        # The claim of the partitions must have committed before.
        # A snapshot from before that may lack the rows that the last owner has parked in its last save.
        owned = [each for number, each in self._state.partitions.items() if number in numbers]
        # A reader may or may not see the changes of a save in flight, so such a partition is loaded another time.
        certain = [each for each in owned if not each.is_lost and not each.last_save.is_in_flight]
        return ParkedLoad(
            {each: each.parked.change_count for each in certain}, any(not each.parked.are_rows_known for each in owned)
        )

    # No new event may start before all rows that block it are known.
    @under_lock
    def finish_loading(
        self, loading: ParkedLoad, rows: ParkedIndex, versions: Mapping[int, int], now: float
    ) -> set[int]:
        """Store the failed or waiting events that were read from the database, and let their partitions run."""
        # The rows were read since the call of `begin_loading`. The returned partitions have certain rows: no save has
        # changed them meanwhile. The rows of a partition are uncertain if a save has changed some since. No new event
        # runs before all rows that block are known.
        certain = {
            each.number: each
            for each, changes in loading.change_counts.items()
            if each.parked.change_count == changes and not each.last_save.is_in_flight
        }
        for number, record_id in rows.rows_ahead:
            if number in certain and not certain[number].parked.are_rows_known:
                certain[number].parked.ahead_ids.add(record_id)
        for number, partition in certain.items():
            blocking = [row for row in rows.blocking_rows if row.partition == number]
            spills = [spill for spill in rows.spills if spill.partition == number]
            keys = partition.parked.load_rows(blocking, rows.loose_rows.get(number, LooseRows()), now, spills)
            texts = {row.record_id: row.error for row in blocking if row.error is not None}
            for key in keys:
                self._schedule_loaded(partition, key, texts, now)
            if partition.parked.early_ids:
                self._state.early_partitions.add(number)
            if partition.parked.pending_parks:
                self._state.mark_dirty(partition)
            self._state.park_followers(partition, keys)
            partition.finish_loading(versions[number])
        return set(certain)

    def _schedule_loaded(self, partition: Partition, key: Key, texts: Mapping[int, str], now: float) -> None:
        # `texts` has, by id, the stored words of the rows that wait for a turn. A key whose first row is one of them
        # need not wake before that row may have its turn.
        chain = partition.parked.chains[key]
        head = chain.rows[0] if chain.rows else None
        text = None if head is None or head.stage is not RowStage.WAITING else texts.get(head.id)
        if head is not None and text is not None and head.state is RowState.DEFERRED and head.waits:
            self._state.stored_waits.add(text, EvictedRow(partition, partition.incarnation, key, head, now))
        else:
            self._state.schedule_wakeup(partition, key)

    def _is_current(self, tenure: Tenure) -> bool:
        partition = self._state.partitions.get(tenure.number)
        return partition is not None and partition.epoch == tenure.epoch

    def _adopt(self, rows: Iterable[OwnedPartition], now: float) -> None:
        for row in rows:
            partition = Partition(
                row,
                now,
                window=self._window,
                dead_letters=self._dead_letters,
                spill_after=self._spill_after,
                notes=self._notes,
            )
            before = self._state.partitions.get(row.partition)
            partition.predecessor = before if before is not None and before.is_busy else None
            self._state.partitions[row.partition] = partition

    def _lose(self, partitions: Iterable[Partition]) -> LostPartitions:
        lost = LostPartitions([], [])
        for partition in partitions:
            if not partition.is_lost:
                (lost.draining_numbers if partition.is_draining else lost.running_numbers).append(partition.number)
            # If the database still names this process as the owner, the next tick must react.
            self.is_settled = False
            partition.lose()
            self._state.dirty_partitions.discard(partition)
            self._drop_if_over(partition)
        if lost.running_numbers:
            self._state.on_ownership_change(None)
        return lost

    def _drain(self, partitions: Iterable[Partition], now: float) -> None:
        for partition in partitions:
            if not partition.is_stopping and partition.may_drain(now):
                partition.drain()
                self._state.mark_dirty(partition)
        self._state.on_ownership_change(now)

    def _drop_if_over(self, partition: Partition) -> None:
        if partition.is_lost and not partition.is_busy:
            self._state.drop_partition(partition)


def _matches_row(partition: Partition, row: TickPartition) -> bool:
    # The partition must run, and its epoch and parked rows must agree with its database row. Then there is nothing to
    # do about it.
    parked = partition.parked
    runs = partition.phase is Phase.RUNNING and partition.predecessor is None and parked.has_read_due
    is_mine = row.is_assigned and row.is_owned and row.epoch == partition.epoch
    return runs and is_mine and parked.version >= row.parked_version
