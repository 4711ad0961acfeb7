"""Queues of the lanes in one process that are ready to run."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from partbox.worker.engine.partition import Lane

# Lanes that a lone runner takes at a time.
BUNDLE = 64
# Lanes that are examined for each event that a list still takes.
SEARCHED = 4
# While new events wait, one of this number of turns goes to an event that failed or was delayed. So the retries of a
# handler that fails a lot take at most a quarter of the turns.
TURNS = 4


class RunQueue(Protocol):
    """The interface of the queue from which runners take the events to handle next.

    It has event queues, one per key. Every method needs the engine's lock."""

    def __len__(self) -> int:
        """Return the number of event queues that are ready to run."""
        ...

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        """Add queues of events of one key that are ready to run."""
        # `due` means that their events had been parked (set aside), and that their time has come.
        ...

    def take(self) -> list[Lane]:
        """Remove and return the event queues that one runner should run next."""
        ...

    def take_joining(self, joining: Callable[[Lane], int], most: int) -> list[Lane]:
        """Remove and return event queues, until `most` of their events can be handled in one call."""
        # The list is for one handler.
        # `joining` counts the events of a lane that can join.
        ...


class ReadyQueue:
    """A queue of the events that are ready to run, with turns for new events and for retried or delayed events."""

    # It has event queues, one per key. The caller holds the lock.

    __slots__ = ("_bundle", "_rotation", "due_lanes", "new_lanes")

    def __init__(self, bundle: int) -> None:
        self._bundle = bundle
        self._rotation = 0
        self.new_lanes: deque[Lane] = deque()
        self.due_lanes: deque[Lane] = deque()

    def __len__(self) -> int:
        return len(self.new_lanes) + len(self.due_lanes)

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        (self.due_lanes if due else self.new_lanes).extend(lanes)

    def take(self) -> list[Lane]:
        # A lone runner takes up to `bundle` lanes of new events at once, because no other runner could take them.
        # Of `TURNS` lanes one has a parked event that is due, and the others have new events.
        fresh, due = self.new_lanes, self.due_lanes
        if self._bundle > 1 and not due:
            return [fresh.popleft() for _ in range(min(self._bundle, len(fresh)))]
        self._rotation = (self._rotation + 1) % TURNS
        return [due.popleft() if due and (self._rotation == 0 or not fresh) else fresh.popleft()]

    def take_joining(self, joining: Callable[[Lane], int], most: int) -> list[Lane]:
        # Lanes are taken until `most` of their events can join a list for one handler.
        # Lanes without such events go to the end.
        found: list[Lane] = []
        left = most
        for queue in (self.new_lanes, self.due_lanes):
            for _ in range(min(len(queue), SEARCHED * most)):
                if left <= 0:
                    break
                lane = queue.popleft()
                left -= (many := joining(lane))
                (found if many else queue).append(lane)
        return found
