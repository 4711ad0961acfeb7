"""What is to be done later in a run, mostly to undo what was done before."""

import heapq
import time
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Agenda:
    """Actions by the time they are due; those due at once in the order in which they were noted."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def after(self, seconds: float, action: Action) -> None:
        """Do it so many seconds from now."""
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), action))

    def settle(self) -> None:
        """Do what is due by now."""
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()

    def finish(self) -> None:
        """Do all of it now, and what it adds."""
        while self._later:
            heapq.heappop(self._later)[2]()
