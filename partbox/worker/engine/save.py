"""The part of a save that is about one partition, and its consequences when it is committed."""

from collections.abc import Sequence
from typing import NamedTuple

from partbox.protocol.parking import RowState
from partbox.protocol.progress import Target
from partbox.protocol.rows import Park, Saving
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.parked_rows import Pending
from partbox.worker.engine.partition import Partition, Tenure
from partbox.worker.engine.state import EngineState

READY = Verdict(RowState.READY, 0, None, True, None)


class PartitionSave(NamedTuple):
    """Its cursor, parks and deletions; `finished` counts the records that had been finished here by then.

    `still`: nothing has become of its records since the save before, whose last id it has. Such a save only moves the
    snapshot and the floor, and does not count as progress: who asks since when a partition stands still is told so.
    """

    partition: Partition
    incarnation: int
    target: Target
    parks: list[Pending]
    done_ids: list[int]
    finished: int
    release: bool
    still: bool

    @property
    def tenure(self) -> Tenure:
        """The ownership that it is a save of."""
        return self.partition.tenure

    def saving(self) -> Saving:
        """Its cursor, as the statement has it."""
        page = self.target.page
        last_id = None if self.still else self.target.last_id
        return Saving(self.partition.number, self.partition.epoch, page.snapshot, last_id, page.floor, self.release)


def gather(partition: Partition) -> PartitionSave:
    """Take what there is to save of it, and of one that drains and is quiet the release. Lock held."""
    draining = partition.draining
    release = draining and partition.running == 0 and partition.cursor.until is None
    if draining:
        for event in partition.charged():  # charged and not started: the attempt is taken back
            partition.parked.park(event, Verdict(RowState.READY, event.attempt - 1, None, True, None))
    if release:
        partition.settle_remembered()
        # Everything read, unfinished and at or below the last id that the release saves is handed over `ready`.
        last_id, waiting = partition.progress.released().last_id, partition.waiting()
        for id in partition.progress.unfinished():
            if id <= last_id and id in waiting:
                partition.parked.park(waiting[id], READY)
    progress, before = partition.progress, partition.last_save
    target = progress.released() if release else progress.target()
    parks, done_ids = partition.parked.take_unsaved()
    before.under_way = True
    finished = progress.finished_ever()
    stirred = release or parks or done_ids or finished != before.finished
    still = not stirred and target.last_id == before.last_id
    return PartitionSave(partition, partition.incarnation, target, parks, done_ids, finished, release, still)


def sent(saves: Sequence[PartitionSave]) -> tuple[list[Saving], list[Park], list[int]]:
    """The arguments of the save: cursors, parks, finished parked rows."""
    return (
        [save.saving() for save in saves],
        [pending.park for save in saves for pending in save.parks],
        [id for save in saves for id in save.done_ids],
    )


def committed(engine: EngineState, saves: Sequence[PartitionSave], now: float) -> None:
    """The save of these is committed. Lock held."""
    for save in saves:
        partition = save.partition
        if partition.incarnation != save.incarnation:
            continue
        partition.saved(save.target, save.finished, now)
        if save.parks or save.done_ids:
            for key in partition.parked.committed(save.parks, save.done_ids, now):
                engine.wake(partition, key)
    engine.take_turns()
