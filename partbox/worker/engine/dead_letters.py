"""The dead events that are owed to the dead-letter hook: those in memory, the one that is told, and the pause after a
failure.

They stand beside the lanes: a hook that does not return holds no runner. While all goes well a few of them are fetched
ahead. After a failure all are put back, where their rows wait in the database, and one at a time is fetched after a
pause that doubles with each failure; the first success ends that.
"""

from collections import deque
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.state import EngineState

MAX_PREFETCHED = 100  # letters in memory
RETRY = 10.0  # seconds until the hook is told again of an event for which it failed, at least
FIRST_PAUSE = 1.0  # seconds from the first failure to the next call, for another event
LONGEST_PAUSE = 60.0  # of a target that is away
LONGEST_OF_ERRORS = 10.0  # of a hook that raises: the reason may be this one event
MAX_HOLD = 3.0  # seconds for which a call may hold up the release of its partition


class DeadLetter:
    """A dead event for the hook, and the text of its error. `incarnation`: that of its partition when it was fetched;
    `holds_release`: its call runs, and its partition is not released."""

    __slots__ = ("error", "event", "holds_release", "incarnation", "partition")

    def __init__(self, partition: Partition, event: DeliveredEvent, error: str) -> None:
        self.partition = partition
        self.event = event
        self.error = error
        self.incarnation = partition.incarnation
        self.holds_release = False


class HookDelays(NamedTuple):
    """Seconds until the hook is told again of the event for which it failed, and until it is told of any."""

    event: float
    next: float


class DeadLetterQueue:
    """The verbs of whoever calls the hook; `has_hook`: there is one. Without it nothing is owed any more."""

    def __init__(self, state: EngineState, *, has_hook: bool) -> None:
        self._state = state
        self._lock = state.lock
        self._has_hook = has_hook
        self._waiting: deque[DeadLetter] = deque()
        self._current: DeadLetter | None = None
        self._began = 0.0  # monotonic seconds; of the current call
        self._pause = 0.0  # seconds; 0: the last call went well
        self._resumes_at = 0.0
        self._hold = MAX_HOLD

    @under_lock  # who ends a call may put others back
    def room(self, now: float) -> int:
        """Return the number of letters that may be fetched `now` (monotonic seconds)."""
        list_in_memory = len(self._waiting) + (self._current is not None)
        if not self._pause or not self._has_hook:
            return MAX_PREFETCHED - list_in_memory
        return int(not list_in_memory and now >= self._resumes_at)

    def add(self, dead_letter: DeadLetter) -> None:
        """Have the hook told, or have it done where there is none. Lock held."""
        if self._has_hook:
            self._waiting.append(dead_letter)
            self._state.wakes.dead_letter()
        else:
            self._note(dead_letter, None)

    @under_lock  # a release sees the call, or it does not begin
    def take(self, now: float) -> DeadLetter | None:
        """Take the next letter, which is the current one until it ends; None if there is none.

        One whose partition is to be released, or was read anew, stays due for whoever reads its row next.
        """
        while self._waiting:
            dead_letter = self._waiting.popleft()
            partition = dead_letter.partition
            if not partition.is_stopping and partition.incarnation == dead_letter.incarnation:
                self._current, self._began = dead_letter, now
                dead_letter.holds_release = True
                partition.running += 1
                return dead_letter
        return None

    @under_lock  # either the call ends, or it is given up
    def note_delivered(self, dead_letter: DeadLetter) -> bool:
        """Note that the hook was told; False if the call had been given up before."""
        if not self._end(dead_letter, None):
            return False
        self._pause = 0.0
        return True

    @under_lock  # as `note_delivered`; and nothing more is taken before the pause
    def failed(self, dead_letter: DeadLetter, now: float, *, away: bool, pauses: bool = True) -> HookDelays | None:
        """Have the hook told again later; None if the call had been given up before.

        `away`: what the hook calls does not answer, whichever event it is. The failure `pauses` the others too."""
        pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE if away else LONGEST_OF_ERRORS)
        delays = HookDelays(max(RETRY, pause), pause)
        if not self._end(dead_letter, delays.event):
            return None
        if pauses:
            self._pause, self._resumes_at = pause, now + pause
            self._put_back_waiting()
        return delays

    @under_lock  # a release is gathered of a partition that nothing holds
    def abandon_slow(self, now: float) -> None:
        """Hold up no release by a call that takes long: its event stays due, for the next owner."""
        if self._current is not None and now >= self._began + self._hold:
            self._end_hold(self._current)

    @under_lock  # as `abandon_slow`
    def hurry(self, hold: float) -> None:
        """Hold up a release for so many seconds at most from now on."""
        self._hold = min(self._hold, hold)

    def _put_back_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if each.partition.incarnation == each.incarnation:
                each.partition.parked.put_back(each.event)

    def _end(self, dead_letter: DeadLetter, delay: float | None) -> bool:
        if self._current is not dead_letter:
            return False
        self._current = None
        self._note(dead_letter, delay)
        self._end_hold(dead_letter)
        return True

    def _note(self, dead_letter: DeadLetter, delay: float | None) -> None:
        partition = dead_letter.partition
        if not partition.lost and partition.incarnation == dead_letter.incarnation:
            partition.parked.dead_letter(dead_letter.event, delay)
            self._state.mark_dirty(partition)

    def _end_hold(self, dead_letter: DeadLetter) -> None:
        if dead_letter.holds_release:
            dead_letter.holds_release = False
            dead_letter.partition.running -= 1
            if dead_letter.partition.is_stopping:
                self._state.mark_dirty(dead_letter.partition)
