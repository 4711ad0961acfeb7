"""Actions that are due later in a run, mostly to undo faults."""

import heapq
import time
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class DeferredUndo:
    """Actions by due time; equal times in the order of adding."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def after(self, seconds: float, action: Action) -> None:
        """Add an action that is due this many seconds from now."""
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), action))

    def settle(self) -> None:
        """Run the actions that are due by now."""
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()

    def finish(self) -> None:
        """Run all actions now, and those that they add."""
        while self._later:
            heapq.heappop(self._later)[2]()
