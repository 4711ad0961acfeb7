"""The lane of a dead event that the dead-letter hook is to have."""

from partbox.events import DeliveredEvent
from partbox.worker.engine.partition import Lane, Partition


class DeadLetterLane(Lane):
    """A lane of one dead event, for the dead-letter hook, and the text of its error."""

    __slots__ = ("error",)

    def __init__(self, partition: Partition, event: DeliveredEvent, error: str) -> None:
        super().__init__(partition, (None, event.id))
        self.queue.append(event)
        self.error = error
