"""A lane: the events of one aggregate key that wait in this process, in id order; one of them runs at a time."""

from collections import deque
from typing import TYPE_CHECKING

from partbox.events import DeliveredEvent

if TYPE_CHECKING:
    from partbox.worker.state.partition import Partition

Key = tuple[str, str] | tuple[None, int]


class Lane:
    """`active` from when it is ready to run until it is empty; `running` while its `current` event's handler runs.

    An event without an aggregate id has a lane of its own, which no other event ever joins: its key is (None, id).
    """

    __slots__ = (
        "active",
        "current",
        "done",
        "key",
        "life",
        "partition",
        "queue",
        "running",
        "settled",
        "started",
        "unstuck",
    )

    # Set when the lane begins to run:
    life: int  # the partition's life that `done` belongs to
    started: float  # monotonic seconds; of the current event, while one runs
    # Set when a `current` event is settled, which stays current until the next begins. Not before, most never need it:
    settled: DeliveredEvent | None

    def __init__(self, partition: "Partition", key: Key) -> None:
        self.partition = partition
        self.key = key
        self.queue: deque[DeliveredEvent] = deque()
        self.done: list[tuple[int, bytes]] = []  # (id, event id) of what is done and not recorded yet
        self.active = False
        self.running = False
        self.current: DeliveredEvent | None = None
        self.unstuck: DeliveredEvent | None = None  # parked while its handler went on running

    def has_settled(self, event: DeliveredEvent) -> bool:
        """True if its current event, which this is, is settled already. Lock held."""
        return getattr(self, "settled", None) is event


class LetterLane(Lane):
    """It holds one dead event, for the dead-letter hook, and the text of its error."""

    __slots__ = ("error",)

    def __init__(self, partition: "Partition", event: DeliveredEvent, error: str) -> None:
        super().__init__(partition, (None, event.id))
        self.queue.append(event)
        self.error = error


def key_of(event: DeliveredEvent) -> Key:
    """The aggregate key of an event."""
    aggregate_id = event.aggregate_id
    return (None, event.id) if aggregate_id is None else (event.aggregate_type, aggregate_id)
