"""The lanes whose next event is transactional, and which of them may run next."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

from partbox.events import DeliveredEvent
from partbox.worker.engine.partition import Lane, Partition

TakenRecords = Mapping[Partition, Container[int]]
"""The new records of each partition that the current transaction has taken or parked."""
EventFilter = Callable[[DeliveredEvent], bool]
"""Returns True for an event that the current transaction may run."""


@dataclass(slots=True)
class _PartitionQueue:
    """The events of one partition that wait for a database transaction, in one queue for each event key."""

    # A queue (lane) with a new event at its head is stored under the id of that event. Queues whose first event was set
    # aside in a row of its own (parked) are stored apart.

    new_lanes: dict[int, Lane] = field(default_factory=dict)
    parked_lanes: dict[Lane, None] = field(default_factory=dict)

    def add(self, lane: Lane) -> None:
        head = lane.queue[0]
        if head.parked is not None:
            self.parked_lanes[lane] = None
        else:
            self.new_lanes[head.id] = lane

    def find_lowest_id(self) -> int | None:
        return min(
            (lane.queue[0].id for lane in (*self.new_lanes.values(), *self.parked_lanes) if lane.queue), default=None
        )

    def take(self, partition: Partition, taken: Container[int], fits: EventFilter | None) -> Lane | None:
        """Remove and return an event queue whose first event may run in the transaction now, or None."""
        # The event is a parked event that the saved cursor has passed, or the new event next in line. Otherwise the
        # save of the transaction would not pass it.
        for lane in self.parked_lanes:
            head = lane.queue[0] if lane.queue else None
            if head is None or head.parked is None or not partition.parked.has_passed(head.parked):
                continue
            if fits is None or fits(head):
                del self.parked_lanes[lane]
                return lane
        id = partition.progress.find_next_unfinished(taken)
        waiting = self.new_lanes.get(id) if id is not None else None
        if waiting is None or id is None or not waiting.queue or waiting.queue[0].id != id:
            return None
        return self.new_lanes.pop(id) if fits is None or fits(waiting.queue[0]) else None

    def take_stale(self) -> list[Lane]:
        """Remove and return the event queues whose first event is no longer the event that they were added for."""
        # The event was parked or read again since the lane joined the queue.
        new = [id for id, lane in self.new_lanes.items() if not (lane.queue and _is_new(lane.queue[0], id))]
        parked = [lane for lane in self.parked_lanes if not lane.queue or lane.queue[0].parked is None]
        for lane in parked:
            del self.parked_lanes[lane]
        return [*(self.new_lanes.pop(id) for id in new), *parked]


class TransactionQueue:
    """The waiting list of events that need a database transaction, with partitions in the order of their turns. The
    caller holds the lock."""

    def __init__(self) -> None:
        self._queues: dict[Partition, _PartitionQueue] = {}

    def __bool__(self) -> bool:
        # This is safe without the lock.
        return bool(self._queues)

    def add(self, lane: Lane) -> None:
        """Add an event queue whose first event must run in a transaction."""
        # The event has a transactional handler, so the lane waits for the transactor.
        self._queues.setdefault(lane.partition, _PartitionQueue()).add(lane)

    def clear(self) -> None:
        self._queues.clear()

    def put_lowest_first(self) -> int | None:
        """Give the next transaction to the partition with the oldest waiting event. Return the event's id, or None."""
        # The oldest event has the lowest record id.
        heads = {partition: queue.find_lowest_id() for partition, queue in self._queues.items()}
        found = [(id, partition) for partition, id in heads.items() if id is not None]
        if not found:
            return None
        id, partition = min(found, key=lambda each: each[0])
        self.move_to_front(partition)
        return id

    def move_to_front(self, partition: Partition) -> None:
        """Give this partition the next turn for a transaction, if events of it wait."""
        if partition in self._queues:
            self._queues = {partition: self._queues[partition]} | self._queues

    def move_to_back(self, partitions: Iterable[Partition]) -> None:
        """Give these partitions the last turns, so that waiting event queues of other partitions come first."""
        for partition in partitions:
            if partition in self._queues:
                self._queues[partition] = self._queues.pop(partition)

    def take(self, taken: TakenRecords, fits: EventFilter | None = None) -> Lane | None:
        """Remove and return an event queue whose first event may run in the current transaction, or None."""
        # The event runs after the records in `taken`. `fits` restricts the events.
        for partition, queue in list(self._queues.items()):
            if partition.is_stopping or not (queue.new_lanes or queue.parked_lanes):
                del self._queues[partition]
            elif partition.last_save.is_in_flight and not partition.in_transaction:
                # The save in flight would set the cursor back behind the transaction's effects.
                continue
            elif (lane := queue.take(partition, taken.get(partition, ()), fits)) is not None:
                return lane
        return None

    def list_partitions(self) -> list[Partition]:
        """Return the partitions with events that wait for a transaction, in the order of their turns."""
        return list(self._queues)

    def take_stale(self) -> list[Lane]:
        """Remove and return the event queues whose first event is no longer the event that they were added for."""
        # These lanes must stop waiting for a transaction.
        # The event was parked or read again since the lane joined the queue.
        return [lane for queue in self._queues.values() for lane in queue.take_stale()]


def _is_new(event: DeliveredEvent, id: int) -> bool:
    return event.id == id and event.parked is None
