"""The lanes of one process that have something to do, and whose turn is next."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from partbox.worker.engine.partition import Lane

BUNDLE = 64  # lanes that a lone runner takes at a time
SEARCHED = 4  # how many waiting lanes are looked at for each that a list still takes


class RunQueue(Protocol):
    """Keeps lanes that have something to do. Lock held."""

    def __len__(self) -> int:
        """The number of lanes that wait."""
        ...

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        """Add lanes that have something to do; `due`: their events were parked, and are due."""
        ...

    def take(self) -> list[Lane]:
        """Take out whose turn is next."""
        ...

    def take_joining(self, joining: Callable[[Lane], int], most: int) -> list[Lane]:
        """Take out lanes until so many events of them join a list; `joining`: how many of a lane do."""
        ...


class ReadyQueue:
    """Two queues, of fresh events and of parked ones that are due: they share the handlers 2:1 (DESIGN 7). Lock held.

    A lone runner takes up to `bundle` fresh lanes at a time: there is nobody else who could take the others.
    """

    __slots__ = ("_bundle", "_rotation", "due", "fresh")

    def __init__(self, bundle: int) -> None:
        self._bundle = bundle
        self._rotation = 0
        self.fresh: deque[Lane] = deque()
        self.due: deque[Lane] = deque()

    def __len__(self) -> int:
        return len(self.fresh) + len(self.due)

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        (self.due if due else self.fresh).extend(lanes)

    def take(self) -> list[Lane]:
        """The next lanes, two fresh ones to a due one."""
        fresh, due = self.fresh, self.due
        if self._bundle > 1 and not due:
            return [fresh.popleft() for _ in range(min(self._bundle, len(fresh)))]
        self._rotation = (self._rotation + 1) % 3
        return [due.popleft() if due and (self._rotation == 0 or not fresh) else fresh.popleft()]

    def take_joining(self, joining: Callable[[Lane], int], most: int) -> list[Lane]:
        """Take lanes from the front until `most` events of them join; a lane of which none joins goes to the end."""
        found: list[Lane] = []
        left = most
        for queue in (self.fresh, self.due):
            for _ in range(min(len(queue), SEARCHED * most)):
                if left <= 0:
                    break
                lane = queue.popleft()
                left -= (many := joining(lane))
                (found if many else queue).append(lane)
        return found
