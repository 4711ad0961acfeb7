"""The saves of partitions: gathers the unsaved changes, and records in memory that a save is committed. A save is in
flight from `gather` until `note_committed`. The content of the database is uncertain meanwhile."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from partbox.protocol.parking import RowState
from partbox.protocol.progress import SaveTarget
from partbox.protocol.rows import CursorSave, IgnoredEvent, ProgressNote, SaveEntry, SpillStart
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.parked_rows import PendingPark
from partbox.worker.engine.partition import Partition, Tenure
from partbox.worker.engine.state import EngineState

# Parks an event that is handed over without having started.
READY = Verdict(RowState.READY, 0, None, True, None)


class PartitionSave(NamedTuple):
    """The changes that one save writes for a partition: its position, and the rows of failed or waiting events."""

    # The position is the cursor. A progress note may be written too.

    partition: Partition
    incarnation: int
    target: SaveTarget
    parks: list[PendingPark]
    done_ids: list[int]
    ignored: list[IgnoredEvent]
    spills: list[SpillStart]
    note: ProgressNote | None
    # The number of records that this process had finished when the save was gathered.
    finished_count: int
    is_release: bool
    # True if no record has a new outcome since the last save, which has the same last id. An idle save only moves the
    # snapshot and the floor. A monitor that asks since when a partition stands still does not count it as progress.
    is_idle: bool

    @property
    def tenure(self) -> Tenure:
        return self.partition.tenure

    @property
    def row_count(self) -> int:
        """The number of rows for single events that the save writes or deletes."""
        # These are parked, deleted and ignored events.
        return len(self.parks) + len(self.done_ids) + len(self.ignored)

    def build_cursor_save(self) -> CursorSave:
        """Return the partition's position as an argument of the save statement."""
        # An idle save gives no last record id.
        page = self.target.page
        last_id = None if self.is_idle else self.target.last_id
        return CursorSave(
            self.partition.number, self.partition.epoch, page.snapshot, last_id, page.floor, self.is_release
        )


class UnsavedWork(NamedTuple):
    """The amount of work that waits for the next save, and its urgency."""

    # It is counted in partitions and finished records.

    partition_count: int
    finished_count: int
    # True for a park, a deletion or a release, which other parts wait for.
    is_urgent: bool
    # True if the poller goes on after the save.
    is_awaited: bool
    # True if handlers run that may add to the save.
    may_grow: bool


# Each method is a single critical section, so the content of a save belongs to one moment, and so does its commit.
class Saves:
    """The operations of the saver, the thread that writes positions and failed or waiting events to the database.

    The positions are cursors, and the events are parked."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._lock = state.lock

    @property
    def has_waiting_suspects(self) -> bool:
        """True if events that may have killed a process wait for a save before they run."""
        # This needs no lock.
        # The save gives them their turn to run.
        return self._state.charges.has_waiting

    # All counts belong to one moment.
    @under_lock
    def count_unsaved(self) -> UnsavedWork:
        """Return how much work waits for the next save, and how urgent it is."""
        # The work is counted in partitions and finished records.
        dirty = self._state.dirty_partitions
        return UnsavedWork(
            len(dirty),
            sum(each.progress.count_finished() for each in dirty),
            any(each.is_draining or each.parked.pending_parks or each.parked.done_ids for each in dirty),
            self._state.awaits_saves(),
            any(each.progress.count_in_flight() > 0 for each in dirty),
        )

    # No event ends and no partition is lost between two parts of a save's contents.
    @under_lock
    def gather_saves(self, now: float) -> list[PartitionSave]:
        """Collect the unsaved changes of all partitions for a save."""
        # Partitions that a transaction is going to save are left out.
        return [gather_save(partition, now) for partition in self._state.take_dirty()]

    # The poller's thread takes lost partitions away meanwhile.
    @under_lock
    def filter_owned(self, saves: Iterable[PartitionSave]) -> list[PartitionSave]:
        """Remove the saves of partitions that this process no longer owns, and return the others."""
        # The partitions were lost since the saves were gathered.
        return [save for save in saves if not save.partition.is_lost]

    @under_lock
    def note_committed(self, saves: Sequence[PartitionSave], now: float) -> list[int]:
        """Record that these saves are committed. Return the numbers of the partitions that were released."""
        # Threads that waited for the saves are woken.
        # A released partition is dropped under the same lock, before a tick could take it for lost.
        note_committed(self._state, saves, now)
        if any(save.is_release or save.row_count for save in saves):
            self._state.wakes.interrupt_poller()
        elif self._state.awaits_saves():
            self._state.wakes.wake_poller()
        self._state.wakes.wake_transactor()
        return [save.partition.number for save in saves if save.is_release]

    # The poller's thread adds and drops partitions meanwhile.
    @under_lock
    def advance_idle(self, before: float) -> None:
        """Request a save of each partition that was last saved before `before`, to keep its saved position current."""
        # The cursors of idle partitions move on in the database.
        for partition in self._state.partitions.values():
            if partition.last_save.saved_at < before and not partition.is_stopping:
                # The cursor may have moved with the horizon.
                self._state.mark_dirty(partition)


def gather_save(partition: Partition, now: float) -> PartitionSave:
    """Collect the unsaved changes of one partition for a save. The caller holds the lock."""
    # A draining partition without running handlers is released by the save.
    draining = partition.is_draining
    # No cursor inside a cut page is saved: the rest of the page is read first, and parked.
    release = draining and partition.running_count == 0 and partition.cursor.cut_page is None
    if draining:
        # A charged event that has not started gets its attempt back.
        for event in partition.list_unstarted_charges():
            partition.parked.park(event, Verdict(RowState.READY, event.attempt - 1, None, True, None))
    if release:
        partition.settle_remembered()
        last_id, waiting = partition.progress.find_release_target().last_id, partition.collect_waiting()
        # Unfinished events at or below the last id of the release are handed over as `ready`, so that the next owner
        # repeats nothing.
        for id in partition.progress.list_unfinished():
            if id <= last_id and id in waiting:
                partition.parked.park(waiting[id], READY)
    progress, before = partition.progress, partition.last_save
    target = progress.find_release_target() if release else progress.find_save_target()
    unsaved = partition.parked.take_unsaved()
    before.is_in_flight = True
    finished = progress.count_finished_ever()
    has_changes = release or any(unsaved) or finished != before.finished_count
    is_idle = not has_changes and target.last_id == before.last_id
    note = partition.build_note(finished, now, release=release)
    incarnation = partition.incarnation
    return PartitionSave(partition, incarnation, target, *unsaved, note, finished, release, is_idle)


def build_save_arguments(saves: Sequence[PartitionSave]) -> tuple[list[CursorSave], list[SaveEntry], list[int]]:
    """Return the arguments of the save statement: positions, rows to write, and ids of rows to delete."""
    parks = (pending.parked_save for save in saves for pending in save.parks)
    ignored = (each for save in saves for each in save.ignored)
    spills = (each for save in saves for each in save.spills)
    notes = (save.note for save in saves if save.note is not None)
    return (
        [save.build_cursor_save() for save in saves],
        [*parks, *ignored, *spills, *notes],
        [id for save in saves for id in save.done_ids],
    )


def note_committed(state: EngineState, saves: Sequence[PartitionSave], now: float) -> None:
    """Record in memory that these saves are committed. The caller holds the lock."""
    # Parked events that waited for the saves may run, and released partitions are dropped.
    for save in saves:
        partition = save.partition
        if partition.incarnation != save.incarnation:
            # The partition was read anew from its saved cursor since. Events that this save has passed are found done.
            continue
        partition.note_saved(save.target, save.finished_count, now, noted=save.note is not None)
        if save.parks or save.done_ids:
            for key in partition.parked.note_committed(save.parks, save.done_ids, now):
                state.schedule_wakeup(partition, key)
        if partition.parked.spills.chains:
            partition.parked.change_count += len(save.spills)
            for key in partition.parked.spills.note_saved():
                state.schedule_wakeup(partition, key)
    state.wake_next_trials()
    for save in saves:
        if save.is_release:
            state.drop_partition(save.partition)
