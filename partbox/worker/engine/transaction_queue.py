"""The lanes that wait with a transactional event, and which of them may run next."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from partbox.events import DeliveredEvent
from partbox.worker.engine.partition import Lane, Partition

TakenRecords = Mapping[Partition, Container[int]]
"""The new records of each partition that are in the transaction in hand, or parked by it."""
EventFilter = Callable[[DeliveredEvent], bool]
"""True for an event that the transaction in hand may run."""


@dataclass(slots=True)
class _PartitionQueue:
    """The lanes of one partition: by the id of a new record at their head, or with a parked one."""

    new: dict[int, Lane] = field(default_factory=dict)
    parked: dict[Lane, None] = field(default_factory=dict)

    def add(self, lane: Lane) -> None:
        head = lane.queue[0]
        if head.parked is not None:
            self.parked[lane] = None
        else:
            self.new[head.id] = lane

    def lowest_id(self) -> int | None:
        return min((lane.queue[0].id for lane in (*self.new.values(), *self.parked) if lane.queue), default=None)

    def take(self, partition: Partition, taken: Container[int], fits: EventFilter | None) -> Lane | None:
        """Take out the lane whose head may run now: parked and passed by the saved cursor, or next in line.

        Else the transaction's save would not pass it (DESIGN 6).
        """
        for lane in self.parked:
            head = lane.queue[0] if lane.queue else None
            if head is None or head.parked is None or not partition.parked.is_passed(head.parked):
                continue
            if fits is None or fits(head):
                del self.parked[lane]
                return lane
        id = partition.progress.next_to_finish(taken)
        waiting = self.new.get(id) if id is not None else None
        if waiting is None or id is None or not waiting.queue or waiting.queue[0].id != id:
            return None
        return self.new.pop(id) if fits is None or fits(waiting.queue[0]) else None

    def take_stale(self) -> list[Lane]:
        """Take out the lanes whose head is not there any more: parked, perhaps back as such, or read anew."""
        new = [id for id, lane in self.new.items() if not (lane.queue and _is_new(lane.queue[0], id))]
        parked = [lane for lane in self.parked if not lane.queue or lane.queue[0].parked is None]
        for lane in parked:
            del self.parked[lane]
        return [*(self.new.pop(id) for id in new), *parked]


class TransactionQueue:
    """The lanes of one process that wait, by partition; the first partition has the next turn. Lock held."""

    def __init__(self) -> None:
        self._queues: dict[Partition, _PartitionQueue] = {}

    def __bool__(self) -> bool:
        """True if any lane waits; may be asked without the lock."""
        return bool(self._queues)

    def add(self, lane: Lane) -> None:
        """The lane's head is a transactional event."""
        self._queues.setdefault(lane.partition, _PartitionQueue()).add(lane)

    def clear(self) -> None:
        """Forget all: they are read anew."""
        self._queues.clear()

    def put_lowest_first(self) -> int | None:
        """The lowest id that waits, if any does; its partition has the next turn."""
        heads = {partition: queue.lowest_id() for partition, queue in self._queues.items()}
        found = [(id, partition) for partition, id in heads.items() if id is not None]
        if not found:
            return None
        id, partition = min(found, key=lambda each: each[0])
        self.move_to_front(partition)
        return id

    def move_to_front(self, partition: Partition) -> None:
        """The partition has the next turn, if anything waits in it."""
        if partition in self._queues:
            self._queues = {partition: self._queues[partition]} | self._queues

    def move_to_back(self, partitions: Iterable[Partition]) -> None:
        """The others have their turn first."""
        for partition in partitions:
            if partition in self._queues:
                self._queues[partition] = self._queues.pop(partition)

    def take(self, taken: TakenRecords, fits: EventFilter | None = None) -> Lane | None:
        """Take out a lane whose head may run now, in a transaction that has taken these; any, unless it must fit."""
        for partition, queue in list(self._queues.items()):
            if partition.is_stopping or not (queue.new or queue.parked):
                del self._queues[partition]
            elif partition.last_save.is_in_flight and not partition.in_transaction:
                continue  # that save would set the cursor back behind the effects (DESIGN 6)
            elif (lane := queue.take(partition, taken.get(partition, ()), fits)) is not None:
                return lane
        return None

    def partitions(self) -> list[Partition]:
        """The partitions with lanes that wait."""
        return list(self._queues)

    def take_stale(self) -> list[Lane]:
        """Take out the lanes whose events went another way."""
        return [lane for queue in self._queues.values() for lane in queue.take_stale()]


def _is_new(event: DeliveredEvent, id: int) -> bool:
    return event.id == id and event.parked is None
