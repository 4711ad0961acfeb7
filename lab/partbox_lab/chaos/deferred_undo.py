"""Actions that are due later in a run, mostly to undo faults."""

import heapq
import time
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class DeferredUndo:
    """A queue of actions by due time. Equal times keep the order of adding."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def after(self, seconds: float, action: Action) -> None:
        """Add an action that is due after some seconds."""
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), action))

    def settle(self) -> None:
        """Run the actions that are due."""
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()

    def finish(self) -> None:
        """Run all actions now in the order of time, including actions that they add."""
        while self._later:
            heapq.heappop(self._later)[2]()
