"""Saves: collect the unsaved changes of partitions, and record which saves are committed.

The saver gathers the dirty partitions under the lock, sends one statement without it, and reports back. The transactor
does the same within its transaction.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from partbox.protocol.parking import RowState
from partbox.protocol.progress import SaveTarget
from partbox.protocol.rows import CursorSave, IgnoredEvent, ProgressNote, SaveEntry
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.parked_rows import PendingPark
from partbox.worker.engine.partition import Partition, Tenure
from partbox.worker.engine.state import EngineState

# Parks an event that was handed over unstarted.
READY = Verdict(RowState.READY, 0, None, True, None)


class PartitionSave(NamedTuple):
    """The save of one partition.

    `incarnation` is the partition's when the save was gathered: if it was read anew since, the changes do not count.
    `finished` counts the records finished by then. `is_idle` is true if nothing but the horizon has moved.
    """

    partition: Partition
    incarnation: int
    target: SaveTarget
    parks: list[PendingPark]
    done_ids: list[int]
    ignored: list[IgnoredEvent]
    note: ProgressNote | None
    finished: int
    release: bool
    is_idle: bool

    @property
    def tenure(self) -> Tenure:
        """The ownership for which the save is made."""
        return self.partition.tenure

    @property
    def rows(self) -> int:
        """The number of rows that the save changes, besides the cursor."""
        return len(self.parks) + len(self.done_ids) + len(self.ignored)

    def saving(self) -> CursorSave:
        """Return the cursor part of the save."""
        page = self.target.page
        last_id = None if self.is_idle else self.target.last_id
        return CursorSave(self.partition.number, self.partition.epoch, page.snapshot, last_id, page.floor, self.release)


class UnsavedWork(NamedTuple):
    """The amount of unsaved work, from which the saver decides when to save.

    `partitions` and `finished` are counts. `is_urgent`: a partition drains or has changed rows. `is_awaited`: the
    poller can go on when something is saved. `may_grow`: handlers have events in hand.
    """

    partitions: int
    finished: int
    is_urgent: bool
    is_awaited: bool
    may_grow: bool


class Saves:
    """The part of the engine for the saver."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._lock = state.lock

    @property
    def has_waiting_suspects(self) -> bool:
        """True if suspects wait for their turn."""
        return self._state.charges.waiting

    @under_lock
    def unsaved(self) -> UnsavedWork:
        """Return how much there is to save."""
        dirty = self._state.dirty
        return UnsavedWork(
            len(dirty),
            sum(each.progress.count_finished() for each in dirty),
            any(each.draining or each.parked.pending or each.parked.done_ids for each in dirty),
            self._state.awaits_saves(),
            any(each.progress.count_in_flight() > 0 for each in dirty),
        )

    @under_lock
    def gather(self, now: float) -> list[PartitionSave]:
        """Collect the saves of all partitions that have something to save."""
        return [gather(partition, now) for partition in self._state.take_dirty()]

    @under_lock
    def filter_owned(self, saves: Iterable[PartitionSave]) -> list[PartitionSave]:
        """Return the saves of partitions that are not lost."""
        return [save for save in saves if not save.partition.lost]

    @under_lock
    def note_committed(self, saves: Sequence[PartitionSave], now: float) -> list[int]:
        """Record that these saves are committed, and return the numbers of the partitions that were released."""
        note_committed(self._state, saves, now)
        if any(save.release or save.rows for save in saves):
            self._state.wakes.interrupt_poller()
        elif self._state.awaits_saves():
            self._state.wakes.poll()
        self._state.wakes.transact()
        return [save.partition.number for save in saves if save.release]

    @under_lock
    def advance_idle(self, before: float) -> None:
        """Mark partitions for a save that were last saved before this time (monotonic seconds)."""
        for partition in self._state.partitions.values():
            if partition.last_save.at < before and not partition.is_stopping:
                self._state.mark_dirty(partition)


def gather(partition: Partition, now: float) -> PartitionSave:
    """Collect the save of one partition. The lock must be held.

    A partition that drains and has no running handlers is released with the save: the waiting events are parked as
    `ready`, so that the cursor can pass everything.
    """
    draining = partition.draining
    release = draining and partition.running == 0 and partition.cursor.cut is None
    if draining:
        for event in partition.charged():
            partition.parked.park(event, Verdict(RowState.READY, event.attempt - 1, None, True, None))
    if release:
        partition.settle_remembered()
        last_id, waiting = partition.progress.release_target().last_id, partition.waiting()
        for id in partition.progress.unfinished():
            if id <= last_id and id in waiting:
                partition.parked.park(waiting[id], READY)
    progress, before = partition.progress, partition.last_save
    target = progress.release_target() if release else progress.target()
    parks, done_ids, ignored = partition.parked.take_unsaved()
    before.is_in_flight = True
    finished = progress.count_finished_ever()
    has_changes = release or parks or done_ids or finished != before.finished
    is_idle = not has_changes and target.last_id == before.last_id
    note = partition.note(finished, now, release=release)
    incarnation = partition.incarnation
    return PartitionSave(partition, incarnation, target, parks, done_ids, ignored, note, finished, release, is_idle)


def save_arguments(saves: Sequence[PartitionSave]) -> tuple[list[CursorSave], list[SaveEntry], list[int]]:
    """Return the arguments of the save statement: cursors, rows to write, and ids of rows to delete."""
    parks = (pending.park for save in saves for pending in save.parks)
    notes = (save.note for save in saves if save.note is not None)
    return (
        [save.saving() for save in saves],
        [*parks, *(ignored for save in saves for ignored in save.ignored), *notes],
        [id for save in saves for id in save.done_ids],
    )


def note_committed(state: EngineState, saves: Sequence[PartitionSave], now: float) -> None:
    """Record that these saves are committed. The lock must be held."""
    for save in saves:
        partition = save.partition
        if partition.incarnation != save.incarnation:
            continue
        partition.saved(save.target, save.finished, now, noted=save.note is not None)
        if save.parks or save.done_ids:
            for key in partition.parked.note_committed(save.parks, save.done_ids, now):
                state.wake(partition, key)
    state.wake_next_trials()
    for save in saves:
        if save.release:
            state.drop(save.partition)
