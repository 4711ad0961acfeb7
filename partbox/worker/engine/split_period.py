"""The period in which new events get lanes at once, because a shared lane was split."""

SHORTEST, LONGEST = 0.02, 1.0  # seconds
# A split within this multiple of a period's length after its end confirms that period.
CONFIRM_WITHIN = 10


class SplitPeriod:
    """A period in which the events of each key get a queue of their own, because a slow handler held up other keys."""

    # New events are queued by key at once, without a shared queue. The split of a shared lane begins the period, which
    # doubles if the last one ended just before.

    __slots__ = ("_ends_at", "_length", "is_active")

    def __init__(self) -> None:
        self.is_active = False
        self._length = SHORTEST
        self._ends_at = 0.0

    def begin(self, now: float) -> None:
        """Start a period in which the events of each key get a queue of their own, unless such a period is active."""
        # `now` is in monotonic seconds.
        # A lane may be split needlessly: its runner waited for the interpreter or a processor, and its handlers never
        # wait. Lanes cost several times as much as such handlers, so the first period is short. If handlers do wait,
        # the lane is split again after each period, and soon nearly all events get lanes at once.
        if self.is_active:
            return
        confirmed = now < self._ends_at + CONFIRM_WITHIN * self._length
        self._length = min(LONGEST, 2 * self._length) if confirmed else SHORTEST
        self._ends_at = now + self._length
        self.is_active = True

    def end_if_over(self, now: float) -> None:
        if self.is_active and now >= self._ends_at:
            self.is_active = False
