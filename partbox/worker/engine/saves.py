"""Gathers the next save of each partition, and notes in memory what follows when it is committed.

A save is under way from `gather` until `note_committed`: what the database knows of its partitions cannot be told
meanwhile.
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

READY = Verdict(RowState.READY, 0, None, True, None)


class PartitionSave(NamedTuple):
    """Its cursor, parks and deletions, and a note of it if one is due.

    `finished` counts the records that had been finished here by then.

    `is_idle`: nothing has become of its records since the save before, whose last id it has. Such a save only moves the
    snapshot and the floor, and does not count as progress: who asks since when a partition stands still is told so.
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
        """The ownership that it is a save of."""
        return self.partition.tenure

    @property
    def rows(self) -> int:
        """The number of rows that it writes or deletes for single events."""
        return len(self.parks) + len(self.done_ids) + len(self.ignored)

    def saving(self) -> CursorSave:
        """Its cursor, as the statement has it."""
        page = self.target.page
        last_id = None if self.is_idle else self.target.last_id
        return CursorSave(self.partition.number, self.partition.epoch, page.snapshot, last_id, page.floor, self.release)


class UnsavedWork(NamedTuple):
    """The extent of the next save: of how many partitions it is, and how many records were finished there.

    `is_urgent`: a park, a deletion or a release, which somebody waits for. `is_awaited`: the poller goes on when it is
    saved. `may_grow`: handlers run that may add to it.
    """

    partitions: int
    finished: int
    is_urgent: bool
    is_awaited: bool
    may_grow: bool


class Saves:
    """The verbs of the saver. Each is one section: what a save says belongs to one moment, and so does its end."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._lock = state.lock

    @property
    def has_waiting_suspects(self) -> bool:
        """True if a save gives suspects their turn; read without the lock."""
        return self._state.charges.waiting

    @under_lock  # all counts are of one moment
    def unsaved(self) -> UnsavedWork:
        """Measure the next save."""
        dirty = self._state.dirty
        return UnsavedWork(
            len(dirty),
            sum(each.progress.count_finished() for each in dirty),
            any(each.draining or each.parked.pending or each.parked.done_ids for each in dirty),
            self._state.awaits_saves(),
            any(each.progress.count_in_flight() > 0 for each in dirty),
        )

    @under_lock  # nobody finishes or loses anything between two parts of what a save says
    def gather(self, now: float) -> list[PartitionSave]:
        """Take all that there is to save, but for partitions that a transaction is to save."""
        return [gather(partition, now) for partition in self._state.take_dirty()]

    @under_lock  # ownership loses partitions meanwhile
    def filter_owned(self, saves: Iterable[PartitionSave]) -> list[PartitionSave]:
        """Keep those of the saves gathered before that may yet be sent."""
        return [save for save in saves if not save.partition.lost]

    @under_lock  # what is released is dropped before a tick could take it for lost
    def note_committed(self, saves: Sequence[PartitionSave], now: float) -> list[int]:
        """Note that these are saved, and wake who waits for it; the partitions that were released by it."""
        note_committed(self._state, saves, now)
        if any(save.release or save.rows for save in saves):
            self._state.wakes.interrupt_poller()
        elif self._state.awaits_saves():
            self._state.wakes.poll()
        self._state.wakes.transact()
        return [save.partition.number for save in saves if save.release]

    @under_lock  # ownership adds and drops partitions
    def advance_idle(self, before: float) -> None:
        """Save anew what was last saved before this time: its cursor may have moved with the horizon (EVIDENCE B4)."""
        for partition in self._state.partitions.values():
            if partition.last_save.at < before and not partition.is_stopping:
                self._state.mark_dirty(partition)


def gather(partition: Partition, now: float) -> PartitionSave:
    """Take what there is to save of it, and of one that drains and is quiet the release. Lock held."""
    draining = partition.draining
    # No cursor inside a cut page is saved: the rest of it is read on, and parked (DESIGN 5).
    release = draining and partition.running == 0 and partition.cursor.cut is None
    if draining:
        for event in partition.charged():  # charged and not started: the attempt is taken back (DESIGN 7)
            partition.parked.park(event, Verdict(RowState.READY, event.attempt - 1, None, True, None))
    if release:
        partition.settle_remembered()
        # What was read, is unfinished and lies at or below the last id that the release saves is handed over `ready`:
        # the next owner repeats nothing (EVIDENCE B5).
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
    """The arguments of the save: cursors; parks, ignored events and notes; finished parked rows."""
    parks = (pending.park for save in saves for pending in save.parks)
    notes = (save.note for save in saves if save.note is not None)
    return (
        [save.saving() for save in saves],
        [*parks, *(ignored for save in saves for ignored in save.ignored), *notes],
        [id for save in saves for id in save.done_ids],
    )


def note_committed(state: EngineState, saves: Sequence[PartitionSave], now: float) -> None:
    """Note that these are saved; what was released by it is dropped. Lock held."""
    for save in saves:
        partition = save.partition
        if partition.incarnation != save.incarnation:
            continue  # read anew since, from the saved cursor: what this save passed is found done (EVIDENCE A9)
        partition.saved(save.target, save.finished, now, noted=save.note is not None)
        if save.parks or save.done_ids:
            for key in partition.parked.note_committed(save.parks, save.done_ids, now):
                state.wake(partition, key)
    state.wake_next_trials()
    for save in saves:
        if save.release:
            state.drop(save.partition)
