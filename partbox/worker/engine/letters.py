"""The dead events that are owed to the dead-letter hook: those in memory, the one that is told, and the pause after a
failure.

They stand beside the lanes: a hook that does not return holds no runner. While all goes well a few of them are fetched
ahead. After a failure all are put back, where their rows wait in the database, and one at a time is fetched after a
pause that doubles with each failure; the first success ends that.
"""

from collections import deque
from typing import NamedTuple

from partbox.events import DeliveredEvent
from partbox.worker.engine.lock import verb
from partbox.worker.engine.partition import Partition
from partbox.worker.engine.state import EngineState

AHEAD = 100  # letters in memory
RETRY = 10.0  # seconds until the hook is told again of an event for which it failed, at least
FIRST_PAUSE = 1.0  # seconds from the first failure to the next call, for another event
LONGEST_PAUSE = 60.0  # of a target that is away
LONGEST_OF_ERRORS = 10.0  # of a hook that raises: the reason may be this one event
HOLD = 3.0  # seconds for which a call may hold up the release of its partition


class Letter:
    """A dead event for the hook, and the text of its error. `incarnation`: that of its partition when it was fetched;
    `holds`: its call runs, and its partition is not released."""

    __slots__ = ("error", "event", "holds", "incarnation", "partition")

    def __init__(self, partition: Partition, event: DeliveredEvent, error: str) -> None:
        self.partition = partition
        self.event = event
        self.error = error
        self.incarnation = partition.incarnation
        self.holds = False


class Delays(NamedTuple):
    """Seconds until the hook is told again of the event for which it failed, and until it is told of any."""

    event: float
    next: float


class Letters:
    """The verbs of whoever calls the hook; `awaited`: there is one. Without it nothing is owed any more."""

    def __init__(self, state: EngineState, *, awaited: bool) -> None:
        self._state = state
        self._lock = state.lock
        self._awaited = awaited
        self._waiting: deque[Letter] = deque()
        self._current: Letter | None = None
        self._began = 0.0  # monotonic seconds; of the current call
        self._pause = 0.0  # seconds; 0: the last call went well
        self._opens_at = 0.0
        self._hold = HOLD

    @verb  # who ends a call may put others back
    def room(self, now: float) -> int:
        """Return the number of letters that may be fetched `now` (monotonic seconds)."""
        in_memory = len(self._waiting) + (self._current is not None)
        if not self._pause or not self._awaited:
            return AHEAD - in_memory
        return int(not in_memory and now >= self._opens_at)

    def add(self, letter: Letter) -> None:
        """Have the hook told, or have it done where there is none. Lock held."""
        if self._awaited:
            self._waiting.append(letter)
            self._state.wakes.letter()
        else:
            self._note(letter, None)

    @verb  # a release sees the call, or it does not begin
    def take(self, now: float) -> Letter | None:
        """Take the next letter, which is the current one until it ends; None if there is none.

        One whose partition is to be released, or was read anew, stays due for whoever reads its row next.
        """
        while self._waiting:
            letter = self._waiting.popleft()
            partition = letter.partition
            if not partition.stopping and partition.incarnation == letter.incarnation:
                self._current, self._began = letter, now
                letter.holds = True
                partition.running += 1
                return letter
        return None

    @verb  # either the call ends, or it is given up
    def told(self, letter: Letter) -> bool:
        """Note that the hook was told; False if the call had been given up before."""
        if not self._end(letter, None):
            return False
        self._pause = 0.0
        return True

    @verb  # as `told`; and nothing more is taken before the pause
    def failed(self, letter: Letter, now: float, *, away: bool, pauses: bool = True) -> Delays | None:
        """Have the hook told again later; None if the call had been given up before.

        `away`: what the hook calls does not answer, whichever event it is. The failure `pauses` the others too."""
        pause = min(2 * self._pause or FIRST_PAUSE, LONGEST_PAUSE if away else LONGEST_OF_ERRORS)
        delays = Delays(max(RETRY, pause), pause)
        if not self._end(letter, delays.event):
            return None
        if pauses:
            self._pause, self._opens_at = pause, now + pause
            self._put_back()
        return delays

    @verb  # a release is gathered of a partition that nothing holds
    def let_go(self, now: float) -> None:
        """Hold up no release by a call that takes long: its event stays due, for the next owner."""
        if self._current is not None and now >= self._began + self._hold:
            self._let_go(self._current)

    @verb  # as `let_go`
    def hurry(self, hold: float) -> None:
        """Hold up a release for so many seconds at most from now on."""
        self._hold = min(self._hold, hold)

    def _put_back(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if each.partition.incarnation == each.incarnation:
                each.partition.parked.put_back(each.event)

    def _end(self, letter: Letter, delay: float | None) -> bool:
        if self._current is not letter:
            return False
        self._current = None
        self._note(letter, delay)
        self._let_go(letter)
        return True

    def _note(self, letter: Letter, delay: float | None) -> None:
        partition = letter.partition
        if not partition.lost and partition.incarnation == letter.incarnation:
            partition.parked.letter(letter.event, delay)
            self._state.touch(partition)

    def _let_go(self, letter: Letter) -> None:
        if letter.holds:
            letter.holds = False
            letter.partition.running -= 1
            if letter.partition.stopping:
                self._state.touch(letter.partition)
