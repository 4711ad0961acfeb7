"""The queue of dead events that are delivered to the dead-letter hook. The hook is called apart from the lanes, so a
call that does not return occupies no runner."""

from collections import deque
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.state import EngineState

MAX_PREFETCHED = 100
# Least seconds until an event for which the hook failed is delivered again.
RETRY = 10.0
# Seconds from the first failure to the call for the next event.
FIRST_PAUSE = 1.0
# Longest pause in seconds while the hook's target is away.
LONGEST_PAUSE = 60.0
# Longest pause in seconds while the hook raises: a single event may be the reason.
LONGEST_OF_ERRORS = 10.0
# Seconds for which a call may delay the release of its partition.
MAX_HOLD = 3.0


class DeadLetter:
    """An event without attempts left (dead) that waits for the dead-letter hook."""

    # While `holds_release` is True the hook runs, and the partition is not released.

    __slots__ = ("error", "event", "holds_release", "incarnation", "partition")

    def __init__(self, partition: Partition, event: DeliveredEvent, error: str) -> None:
        self.partition = partition
        self.event = event
        self.error = error
        # The incarnation of the partition when the event was loaded.
        self.incarnation = partition.incarnation
        self.holds_release = False


class HookDelays(NamedTuple):
    """The waiting times in seconds after a failed call of the dead-letter hook."""

    # `until_retry` is the time until the same event is due again, and `until_next` the time until the hook is called
    # with the next event.

    until_retry: float
    until_next: float


class DeadLetterQueue:
    """The queue of events without attempts left (dead) that wait for the dead-letter hook.

    It also has the current call of the hook, and the pause after a failed call."""

    def __init__(self, state: EngineState, *, has_hook: bool) -> None:
        self._state = state
        self._lock = state.lock
        self._has_hook = has_hook
        self._waiting: deque[DeadLetter] = deque()
        self._current: DeadLetter | None = None
        self._began = 0.0  # monotonic seconds
        self._pause = 0.0  # seconds, 0 after a success
        self._resumes_at = 0.0
        self._max_hold = MAX_HOLD

    # The thread that ends a call may put other events back.
    @under_lock
    def count_room(self, now: float) -> int:
        """Return how many more events for the dead-letter hook may be loaded into memory now."""
        # `now` is in monotonic seconds. The events are dead.
        # After a failed hook call there is no room until the pause is over, and then room for one at a time.
        in_memory = len(self._waiting) + (self._current is not None)
        if not self._pause or not self._has_hook:
            return MAX_PREFETCHED - in_memory
        return int(not in_memory and now >= self._resumes_at)

    def add(self, dead_letter: DeadLetter) -> None:
        """Queue a dead event for the dead-letter hook. The caller holds the lock."""
        # If there is no hook, the event is recorded as delivered.
        if self._has_hook:
            self._waiting.append(dead_letter)
            self._state.wakes.wake_dead_letters()
        else:
            self._note_outcome(dead_letter, None)

    # Either a release sees the call, or the call does not begin.
    @under_lock
    def take(self, now: float) -> DeadLetter | None:
        """Return the next event for the dead-letter hook, or None."""
        # The call must be ended with `note_delivered` or `note_failed`. Events of partitions that are stopping or were
        # read again are discarded: their rows stay due for the next reader.
        while self._waiting:
            dead_letter = self._waiting.popleft()
            partition = dead_letter.partition
            if not partition.is_stopping and partition.incarnation == dead_letter.incarnation:
                self._current, self._began = dead_letter, now
                dead_letter.holds_release = True
                partition.running_count += 1
                return dead_letter
        return None

    # The call either ends or is given up.
    @under_lock
    def note_delivered(self, dead_letter: DeadLetter) -> bool:
        """Record that the dead-letter hook has succeeded. Return False if its call was given up before."""
        # A success ends the pause after a failed call.
        if not self._end_call(dead_letter, None):
            return False
        self._pause = 0.0
        return True

    # The call either ends or is given up, and no event is taken before the pause.
    @under_lock
    def note_failed(self, dead_letter: DeadLetter, now: float, *, away: bool, pauses: bool = True) -> HookDelays | None:
        """Schedule a retry after a failed hook call. Return the delays, or None if the call was given up before."""
        # All loaded events are put back to wait in the database, and single events are loaded after the pause, which
        # doubles with each failure. The first success ends the pause.
        # `away` means that the hook's target does not answer, for any event. `pauses` means that other events wait too.
        pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE if away else LONGEST_OF_ERRORS)
        delays = HookDelays(max(RETRY, pause), pause)
        if not self._end_call(dead_letter, delays.until_retry):
            return None
        if pauses:
            self._pause, self._resumes_at = pause, now + pause
            self._put_back_waiting()
        return delays

    # A release is gathered only for a partition that no call holds.
    @under_lock
    def abandon_slow(self, now: float) -> None:
        """Give up a dead-letter hook call that takes too long, so that its partition can be released."""
        # The partition's next owner repeats the event.
        if self._current is not None and now >= self._began + self._max_hold:
            self._end_hold(self._current)

    # The saver gathers a release from a partition that no call holds.
    @under_lock
    def limit_hold(self, hold: float) -> None:
        """Limit the seconds by which a dead-letter hook call may delay the release of its partition."""
        # The limit holds from now on. It is never raised.
        self._max_hold = min(self._max_hold, hold)

    def _put_back_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if each.partition.incarnation == each.incarnation:
                each.partition.parked.put_back(each.event)

    def _end_call(self, dead_letter: DeadLetter, delay: float | None) -> bool:
        if self._current is not dead_letter:
            return False
        self._current = None
        self._note_outcome(dead_letter, delay)
        self._end_hold(dead_letter)
        return True

    def _note_outcome(self, dead_letter: DeadLetter, delay: float | None) -> None:
        partition = dead_letter.partition
        if not partition.is_lost and partition.incarnation == dead_letter.incarnation:
            partition.parked.note_hook_result(dead_letter.event, delay)
            self._state.mark_dirty(partition)

    def _end_hold(self, dead_letter: DeadLetter) -> None:
        if dead_letter.holds_release:
            dead_letter.holds_release = False
            dead_letter.partition.running_count -= 1
            if dead_letter.partition.is_stopping:
                self._state.mark_dirty(dead_letter.partition)
