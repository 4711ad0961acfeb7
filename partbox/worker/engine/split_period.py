"""The time in which new events get lanes at once, after a line had to be sorted: what waited once will wait again."""

SHORTEST, LONGEST = 0.02, 1.0  # seconds
CONFIRM_WITHIN = 10  # times its length after its end: a line that has to be sorted by then confirms it


class SplitPeriod:
    """Begins when a line is sorted, and is twice as long if the last one ended just before.

    A line may be sorted for nothing: its runner waited for the interpreter, or for a processor, and its handlers never
    wait. Lanes cost several times what such handlers do. So the first period is short. Where handlers wait a line has
    to be sorted as soon as a period is over, and a few of them later nearly all events get lanes at once.
    """

    __slots__ = ("_ends", "_length", "is_active")

    def __init__(self) -> None:
        self.is_active = False
        self._length = SHORTEST
        self._ends = 0.0  # monotonic seconds

    def begin(self, now: float) -> None:
        """Begin one at `now` (monotonic seconds), unless one is under way."""
        if self.is_active:
            return
        confirmed = now < self._ends + CONFIRM_WITHIN * self._length
        self._length = min(LONGEST, 2 * self._length) if confirmed else SHORTEST
        self._ends = now + self._length
        self.is_active = True

    def end_if_over(self, now: float) -> None:
        """End it once its time is over."""
        if self.is_active and now >= self._ends:
            self.is_active = False
