"""What one save says of one partition, and what follows when it is committed."""

import time
from collections import Counter
from collections.abc import Sequence

from partbox.db.cursors import Saving
from partbox.db.parked import Park
from partbox.observe import Observers
from partbox.rules.parking import Verdict
from partbox.rules.progress import Target
from partbox.worker.state.holdings import Holdings
from partbox.worker.state.partition import Partition

READY = Verdict("ready", 0, None, True, None)


class PartitionSave:
    """What a save says of one partition, taken in one moment. Lock held.

    `still`: nothing has become of its records since the save before, whose last id it has. Such a save only moves the
    snapshot and the floor, and does not count as progress: who asks since when a partition stands still is told so.
    """

    __slots__ = ("done_ids", "finished", "life", "parks", "partition", "release", "still", "target")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.life = partition.life
        self.release = partition.draining and partition.running == 0 and partition.cursor.until is None
        if partition.draining:
            for event in partition.charged():
                partition.parked.uncharge(event)
        if self.release:
            partition.settle_remembered()
            _hand_back(partition)
        progress = partition.progress
        self.target: Target = progress.released() if self.release else progress.target()
        self.parks, self.done_ids = partition.parked.take_unsaved()
        before = partition.last_save
        before.under_way = True
        self.finished = progress.finished_ever()
        stirred = self.release or self.parks or self.done_ids or self.finished != before.finished
        self.still = not stirred and self.target.last_id == before.last_id

    def saving(self) -> Saving:
        page = self.target.page
        number, epoch = self.partition.number, self.partition.epoch
        last_id = None if self.still else self.target.last_id
        return Saving(number, epoch, page.snapshot, last_id, page.floor, self.release)


def sent(batches: Sequence[PartitionSave]) -> tuple[list[Saving], list[Park], list[int]]:
    """The arguments of the save: cursors, parks, finished parked rows."""
    return (
        [batch.saving() for batch in batches],
        [pending.park for batch in batches for pending in batch.parks],
        [id for batch in batches for id in batch.done_ids],
    )


def committed(holdings: Holdings, batches: Sequence[PartitionSave]) -> None:
    """The save of these is committed. Lock held."""
    now = time.monotonic()
    for batch in batches:
        partition = batch.partition
        if partition.life != batch.life:
            continue
        partition.saved(batch.target, batch.finished, now)
        if batch.parks or batch.done_ids:
            for key in partition.parked.committed(batch.parks, batch.done_ids, now):
                holdings.wake(partition, key)
    holdings.take_turns()


def tell_saved(observers: Observers, batches: Sequence[PartitionSave], seconds: float) -> None:
    """Tell that these were saved."""
    if observers.hears("saved"):
        parks = (pending.park for batch in batches for pending in batch.parks)
        states = Counter(park.state for park in parks if not park.letter)  # those that a hook had were dead before
        observers.saved(len(batches), states, seconds)


def _hand_back(partition: Partition) -> None:
    """Everything read, unfinished and at or below the last id that the release saves is handed over `ready`."""
    last_id = partition.progress.released().last_id
    waiting = partition.waiting()
    for id in partition.progress.unfinished():
        if id <= last_id and id in waiting:
            partition.parked.park(waiting[id], READY)
