"""The lanes that are ready and those that run, and the runners that wait for one.

A runner asks for lanes with `next`, and says there which of its own have ended. A lane is with one runner at a time,
and not ready while it runs: so its events run in order, one by one (⛨ DESIGN 6). `concurrency` bounds the handlers in
progress; a list counts as one, so the lanes that join one are counted apart.

**No wake-up is missed.** A runner for which there is no lane is counted as idle in the section in which it has looked,
and then waits for a call. Whoever makes a lane ready or a place free takes one off the count and makes one call
(`wakes.run`). Calls are kept until somebody takes them: one that comes before its runner waits is there when it does.

**No place is lost.** There are as many calls and idle runners as runners that wait, or are about to. It does not matter
which of them takes a call: each looks again, and is counted again if it finds nothing. Where nobody is idle and fewer
than `concurrency` are hired, one more is (`wakes.hire`), which looks before it waits. Where all are hired and nobody is
idle, each of them asks by itself when its turn has ended, before it waits.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from partbox.events.record import ROUTE
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.lane_period import LanePeriod
from partbox.worker.engine.limited_queue import LimitedQueue
from partbox.worker.engine.lock import verb
from partbox.worker.engine.outcomes import Outcomes
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.ready_queue import Queue
from partbox.worker.engine.state import EngineState

STUCK = 1.0  # seconds; a handler that runs longer does not hold up its partition any more (DESIGN 6)
SLOW = 0.001  # seconds; a line whose events take longer is sorted into lanes if a runner is free
COST = 0.00002  # seconds; more than an event costs in a lane


class Rest(Enum):
    """Why there is no lane for a runner."""

    IDLE = "no lane is ready"
    WATCH = "no lane is ready, and a line runs of which some may have to be sorted out"
    FULL = "as many handlers run as may"
    UNTRUSTED = "the lease may be over"
    STOPPED = "no handler starts any more"


class Headway(NamedTuple):
    """How far a line has got: when the event was started that it runs, and how many wait behind it."""

    started: float
    waiting: int


class Glance(NamedTuple):
    """The lines that held up others, as a runner that watches has seen them. `in_time`: it got the interpreter at
    once."""

    at: float  # monotonic seconds
    in_time: bool
    lines: Mapping[SharedLane, Headway]


class Runs:
    """The verbs of runner threads, event loop and transactor, and of whoever watches what runs.

    `lines`: handlers are of a kind for which new events may stand in line.

    **A line is sorted when a runner is free and its own waits in a handler.** One of the runners that find nothing to
    do while a line runs watches: it sleeps for a moment, looks, and looks once more. If it woke in time both times it
    got the interpreter at once: so nobody computes, and others could go on with what stands behind the line. If others
    do compute, the line is sorted all the same when its events take so long that lanes cost little beside them. The
    interpreter goes round: between two looks the runner of the line has had it too, nearly always. For a while new
    events get lanes at once then (`LanePeriod`).

    **No line is left unwatched.** When one begins, or gets longer, or whoever watched has found something to run, the
    next runner that is free is called to watch, or hired. In the event loop nobody has to watch: a handler that waits
    says so (`give_way`), and who finds nothing to run knows that all that runs waits, for it runs itself. So a line is
    sorted there at the moment that somebody is free, and stays one while nobody is.
    """

    # Where a lane goes on whose next event is transactional; of `Transactions`. Lock held.
    transact: Callable[[Lane], object]

    def __init__(
        self, state: EngineState, outcomes: Outcomes, concurrency: int, queue: Queue, *, lines: bool = False
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._outcomes = outcomes
        self._concurrency = concurrency
        self._ready = self.unlimited = queue
        self.limited: LimitedQueue | None = None  # before that, while any handler has a limit
        self._running: set[Lane] = set()
        self._joined: set[Lane] = set()  # those of them that run in the list of another
        self._serial: set[Lane] = set()  # those of them whose next event is transactional
        self._hired = 0  # runners, of which there are at most `concurrency`
        self._idle = 0  # those of them that wait and are not called
        self._stopped = False
        self._moved_at = 0.0  # when a runner has last asked for a lane, or ended one; monotonic seconds
        self._lines = lines
        self._lane_period = LanePeriod()
        self.watches = False  # runners are threads, which may watch
        self._watched = False  # a runner that waits looks whether a line has to be sorted

    # Runners.

    @property
    def lines_up(self) -> bool:
        """True if new events may stand in line. Lock held."""
        return self._lines and self.limited is None and not self._lane_period.active

    @property
    def is_full(self) -> bool:
        """True if as many handlers run as may. Lock held."""
        return len(self._running) - len(self._joined) >= self._concurrency

    @property
    def is_supplied(self) -> bool:
        """True if every runner could take a lane that waits. Lock held."""
        return len(self._ready) >= self._concurrency

    def next(self, ended: Sequence[Lane], now: float, *, trusted: bool, waits: bool) -> list[Lane] | Rest:
        """End these lanes; the next to run, or why there are none: then the runner is to wait for a call, if it `waits`
        and the rest is IDLE or FULL. `trusted`: a handler may start now."""
        with self._lock:  # ends, looks, and begins or is counted as idle in one: no call is missed
            self._end(ended)
            self._moved_at = now
            if self._stopped:
                return Rest.STOPPED
            self._lane_period.end_if_over(now)
            full = len(self._running) - len(self._joined) >= self._concurrency
            if not full and not self._ready and not self.watches:
                self._sort(self._held_up())  # one runs at a time: who asks sees that all others wait
            if self.limited is not None:
                self.limited.look(now)
                if self.limited.is_sooner():
                    self._state.wakes.look()
            if full or not self._ready:
                self._idle += waits  # whoever calls takes it off again
                if full or not waits or not self.watches or self._watched or not self._held_up():
                    return Rest.FULL if full else Rest.IDLE
                self._watched = True
                return Rest.WATCH
            if not trusted:
                return Rest.UNTRUSTED
            taken = self._ready.take()
            if self.watches and not self._watched:
                line = taken[-1]
                if (isinstance(line, SharedLane) and len(line.queue) > 1) or self._held_up():
                    self._let_watch()
            return self._begin(taken, now)

    @verb  # the line's runner takes no more of it, and lanes are ready or not
    def relieve(self, before: Glance, now: float, *, in_time: bool) -> Glance:
        """Sort the lines into lanes that hold up others, and did at the glance before, if their handlers wait or are
        slow; what was seen now."""
        lines = {line: Headway(line.started, len(line.queue)) for line in self._held_up()}
        waits = in_time and before.in_time
        held = [line for line in before.lines if line in lines and line.current is not None]  # else no handler runs
        for line in [line for line in held if now - line.started >= COST * self._in_lists()]:
            if waits or _is_slow(before.lines[line], lines[line], before.at, now):
                self._lane_period.begin(now)
                self._sort([line])
                del lines[line]
        return Glance(now, in_time, lines)

    def give_way(self, line: SharedLane, now: float) -> None:
        """Sort a line whose handler waits in the event loop into lanes, for whoever is free to run them."""
        if self._concurrency > 1 and (self.watches or (line.queue and self._somebody_is_free)):
            with self._lock:  # as in `relieve`
                if self.watches:
                    self._lane_period.begin(now)
                self._sort([line])

    @verb  # a line that gets longer is seen by who watches, or somebody is called to
    def look_away(self, *, called: bool) -> bool:
        """Watch no more, if the runner that watches was `called`, or nothing holds up others; True then."""
        self._watched = not called and bool(self._held_up())
        return not self._watched

    @verb  # the lanes end and their place is free as one
    def end(self, lanes: Sequence[Lane]) -> None:
        """End lanes that ran as one handler, whose place is free for another."""
        self._end(lanes)
        self._fill()

    @verb  # a lane is found and begun as one: no runner takes it too
    def take(self, to: Destination, deep: int, most: int, now: float) -> list[Lane]:
        """Lanes that wait with an event for this handler, for a list of so many events more, of which each gives `deep`
        at most; they run from now on."""
        joining = partial(_joining, to, deep)
        if to.place is not None and self.limited is not None:
            found = self.limited.take_those(joining, most, to.place)
        else:
            found = self._ready.take_those(joining, most)
        self._joined.update(found)
        return self._begin(found, now)

    @verb  # read when the lane ends
    def leave_to_transactor(self, lane: Lane) -> None:
        """The next event of this lane is transactional: when it ends it does not go on with a runner."""
        self._serial.add(lane)

    @verb  # a runner sees the stop, or is idle when it is called
    def stop(self) -> None:
        """Start no handler any more; runners end when theirs do."""
        self._stopped = True
        while self._call():
            pass

    def disown(self) -> None:
        """In a forked process: nothing runs or is saved here any more."""
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]  # a thread may hold it which this process has not
        with self._lock:  # nobody else goes on here: for what wants it held
            self._state.forked = self._stopped = True
            for partition in {*self._state.partitions.values(), *(lane.partition for lane in self._running)}:
                partition.lose()

    # Whoever watches.

    @verb  # lanes begin and end meanwhile
    def running(self) -> list[Lane]:
        """The lanes whose handlers run now."""
        return [lane for lane in self._running if lane.current is not None and not lane.has_settled(lane.current)]

    @verb  # as in `running`
    def stuck_since(self) -> float | None:
        """Return since when (monotonic seconds) lanes are ready and no runner takes one, though no handler runs: all of
        them hang in something else. None if that is not so."""
        taken = self._hired >= self._concurrency and not self._idle and self._ready and not self._stopped
        handles = any(lane.current is not None and not lane.has_settled(lane.current) for lane in self._running)
        return self._moved_at if taken and not handles else None

    @verb  # as in `running`
    def handling(self) -> list[Lane]:
        """One lane for each handler that runs now: of a list its first."""
        return [lane for lane in self._running if lane.current is not None and lane not in self._joined]

    # For the engine itself. Lock held.

    def lengthened(self, lines: Sequence[SharedLane]) -> None:
        """More events wait in these lines: they are to be run, or watched if they run. Lock held."""
        self.ready([line for line in lines if not line.running])
        if not self._watched and any(line.running for line in lines):
            self._let_watch()

    def ready(self, lanes: Sequence[Lane], *, due: bool = False) -> None:
        """Have runners take these lanes, which have something to do, when they are free. Lock held."""
        for lane in lanes:
            lane.active = not lane.partition.line.runs(lane.key)  # else it is ready when the turn of the line ends
        lanes = [lane for lane in lanes if lane.active]
        self._ready.add(lanes, due=due)
        for _ in range(min(len(lanes), self._concurrency)):
            if not self._call() and not self._hire():
                return

    def unstick(self, partitions: Collection[Partition], now: float) -> None:
        """Let long-running handlers not hold up these partitions any more, whose windows are full. Lock held."""
        late = now - STUCK
        for lane in [lane for lane in self._running if lane.started < late and lane.partition in partitions]:
            self._outcomes.unstick(lane)
        if self.limited is not None:
            crowd = self.limited.crowd(partitions, late, now)
            for lane in crowd.long:
                self._outcomes.hold_behind_head(lane)
            for lane, place, delay in crowd.leaving:
                self.limited.put_away(place, lane, self._outcomes.put_away(lane, delay, now))

    def begin(self, lane: Lane, now: float) -> None:
        """The lane runs, but not by a runner: its events are transactional. Lock held."""
        self._begin([lane], now)

    def end_serial(self, lane: Lane) -> None:
        """The lane does not run any more; if it has more events it goes on with the transactor. Lock held."""
        self._serial.add(lane)
        self._end([lane])
        self._fill()

    def limit(self, limited: LimitedQueue | None) -> None:
        """Have lanes wait there for their turns from now on, if that is not None. Lines know no turns. Lock held."""
        self.limited, self._ready = limited, self.unlimited if limited is None else limited
        if limited is not None:
            self._sort(each.line for each in self._state.partitions.values() if not each.stopping)

    def call(self, lanes: int) -> None:
        """Call or hire runners for so many lanes. Lock held."""
        for _ in range(min(lanes, self._concurrency)):
            if not self._call() and not self._hire():
                return

    @property
    def _somebody_is_free(self) -> bool:
        return bool(self._idle) or self._hired < self._concurrency

    def _call(self) -> bool:
        """Call a runner that waits; False if none does."""
        if not self._idle:
            return False
        self._idle -= 1
        self._state.wakes.run()
        return True

    def _hire(self) -> bool:
        """Let there be one runner more; False if there are all."""
        if self._hired >= self._concurrency:
            return False
        self._hired += 1
        self._state.wakes.hire()
        return True

    def _fill(self) -> None:
        """Have somebody look for a lane for the place that has got free."""
        if not self._call() and self._ready:
            self._hire()

    def _let_watch(self) -> None:
        """Have somebody look who will find nothing to run, if there is anybody."""
        if not self._call():
            self._hire()

    def _sort(self, lines: Iterable[SharedLane]) -> None:
        for line in lines:
            line.partition.sort_line()
            self.ready(line.partition.sorted_out())

    def _begin(self, lanes: list[Lane], now: float) -> list[Lane]:
        if not self._running:
            self._state.wakes.busy(True)
        for lane in lanes:
            partition = lane.partition
            lane.running, lane.started, lane.incarnation = True, now, partition.incarnation
            partition.running += 1
        self._running.update(lanes)
        return lanes

    def _held_up(self) -> list[SharedLane]:
        """The lines that run and hold up others of their partition."""
        lines = (lane for lane in self._running if isinstance(lane, SharedLane) and not lane.partition.stopping)
        return [line for line in lines if line.queue or line.owes_lanes]

    def _in_lists(self) -> int:
        """The number of events in lists that run: while one takes less time than their lanes would, none is needed."""
        return sum(len(lane.hands) for lane in self._running if isinstance(lane, SharedLane))

    def _end(self, lanes: Sequence[Lane]) -> None:
        self._outcomes.end(lanes)
        if self.limited is not None:
            self.limited.ended(lanes)
        again = [each for lane in lanes for each in self._leave(lane)]
        if again:
            self.ready(again)

    def _leave(self, lane: Lane) -> Iterable[Lane]:
        """The lanes that go on: itself, or those that it was sorted into; a transactional one goes on elsewhere."""
        partition = lane.partition
        self._running.discard(lane)
        if self._joined:
            self._joined.discard(lane)
        if not self._running:
            self._state.wakes.busy(False)
        lane.running, lane.current = False, None
        if isinstance(lane, SharedLane):
            lane.end_turn()
        partition.running -= 1
        serial = bool(self._serial) and lane in self._serial
        if serial:
            self._serial.discard(lane)
        if lane.queue and not partition.stopping:
            if not serial:
                return (lane,)
            self.transact(lane)
            return ()
        lane.active = False
        if not lane.queue:
            partition.close(lane)
        if chains := partition.parked.chains:
            for key in list(chains) if isinstance(lane, SharedLane) else [lane.key]:
                self._state.wake(partition, key)
        if partition.stopping:
            self._state.touch(partition)
        elif isinstance(lane, SharedLane):
            return partition.sorted_out()
        return ()


def _is_slow(before: Headway, pace: Headway, then: float, now: float) -> bool:
    if pace.started == before.started:
        return now - pace.started >= SLOW
    return 0 < before.waiting - pace.waiting <= (now - then) / SLOW


def _joining(to: Destination, deep: int, lane: Lane) -> int:
    if lane.partition.stopping or not lane.queue:
        return 0
    first = lane.queue[0]
    fits = to.routes[(first if lane.claim is not None else first.record)[ROUTE]] is to.endpoint
    return min(deep, len(lane.queue)) if fits else 0
