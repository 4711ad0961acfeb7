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
from partbox.worker.engine.limited_queue import LimitedQueue
from partbox.worker.engine.lock import under_lock
from partbox.worker.engine.outcomes import Outcomes
from partbox.worker.engine.partition import Lane, Partition, SharedLane
from partbox.worker.engine.ready_queue import RunQueue
from partbox.worker.engine.split_period import SplitPeriod
from partbox.worker.engine.state import EngineState

SLOW_AFTER = 1.0  # seconds; a handler that runs longer does not hold up its partition any more (DESIGN 6)
SPLIT_SLOWER = 0.001  # seconds; a line whose events take longer is sorted into lanes if a runner is free
LANE_COST = 0.00002  # seconds; more than an event costs in a lane


class NoLane(Enum):
    """Why there is no lane for a runner."""

    IDLE = "no lane is ready"
    WATCH = "no lane is ready, and a line runs of which some may have to be sorted out"
    FULL = "as many handlers run as may"
    UNTRUSTED = "the lease may be over"
    STOPPED = "no handler starts any more"


class LaneProgress(NamedTuple):
    """How far a line has got: when the event was started that it runs, and how many wait behind it."""

    started: float
    waiting: int


class WatchedLanes(NamedTuple):
    """The lines that held up others, as a runner that watches has seen them. `in_time`: it got the interpreter at
    once."""

    at: float  # monotonic seconds
    in_time: bool
    shared_lanes: Mapping[SharedLane, LaneProgress]


class LaneScheduler:
    """The verbs of runner threads, event loop and transactor, and of whoever watches what runs.

    `shared_lanes`: handlers are of a kind for which new events may stand in line.

    **A line is sorted when a runner is free and its own waits in a handler.** One of the runners that find nothing to
    do while a line runs watches: it sleeps for a moment, looks, and looks once more. If it woke in time both times it
    got the interpreter at once: so nobody computes, and others could go on with what stands behind the line. If others
    do compute, the line is sorted all the same when its events take so long that lanes cost little beside them. The
    interpreter goes round: between two looks the runner of the line has had it too, nearly always. For a while new
    events get lanes at once then (`SplitPeriod`).

    **No line is left unwatched.** When one begins, or gets longer, or whoever watched has found something to run, the
    next runner that is free is called to watch, or hired. In the event loop nobody has to watch: a handler that waits
    says so (`split_if_waiting`), and who finds nothing to run knows that all that runs waits, for it runs itself. So a
    line is sorted there at the moment that somebody is free, and stays one while nobody is.
    """

    # Where a lane goes on whose next event is transactional; of `Transactions`. Lock held.
    transact: Callable[[Lane], object]

    def __init__(
        self, state: EngineState, outcomes: Outcomes, concurrency: int, queue: RunQueue, *, shared_lanes: bool = False
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._outcomes = outcomes
        self._concurrency = concurrency
        self._ready = self.unlimited = queue
        self.limited: LimitedQueue | None = None  # before that, while any handler has a limit
        self._running: set[Lane] = set()
        self._joined: set[Lane] = set()  # those of them that run in the list of another
        self._transactional: set[Lane] = set()  # those of them whose next event is transactional
        self._hired = 0  # runners, of which there are at most `concurrency`
        self._idle = 0  # those of them that wait and are not called
        self._stopped = False
        self._moved_at = 0.0  # when a runner has last asked for a lane, or ended one; monotonic seconds
        self._uses_shared_lanes = shared_lanes
        self._split_period = SplitPeriod()
        self.can_watch = False  # runners are threads, which may watch
        self._has_watcher = False  # a runner that waits looks whether a line has to be sorted

    # Runners.

    @property
    def may_share_lanes(self) -> bool:
        """True if new events may stand in line. Lock held."""
        return self._uses_shared_lanes and self.limited is None and not self._split_period.is_active

    @property
    def is_full(self) -> bool:
        """True if as many handlers run as may. Lock held."""
        return len(self._running) - len(self._joined) >= self._concurrency

    @property
    def is_supplied(self) -> bool:
        """True if every runner could take a lane that waits. Lock held."""
        return len(self._ready) >= self._concurrency

    def next(self, ended: Sequence[Lane], now: float, *, trusted: bool, waits: bool) -> list[Lane] | NoLane:
        """End these lanes; the next to run, or why there are none: then the runner is to wait for a call, if it `waits`
        and the rest is IDLE or FULL. `trusted`: a handler may start now."""
        with self._lock:  # ends, looks, and begins or is counted as idle in one: no call is missed
            self._end(ended)
            self._moved_at = now
            if self._stopped:
                return NoLane.STOPPED
            self._split_period.end_if_over(now)
            full = len(self._running) - len(self._joined) >= self._concurrency
            if not full and not self._ready and not self.can_watch:
                self._split(self._list_blocking())  # one runs at a time: who asks sees that all others wait
            if self.limited is not None:
                self.limited.poll(now)
                if self.limited.advance_timer():
                    self._state.wakes.poll()
            if full or not self._ready:
                self._idle += waits  # whoever calls takes it off again
                if full or not waits or not self.can_watch or self._has_watcher or not self._list_blocking():
                    return NoLane.FULL if full else NoLane.IDLE
                self._has_watcher = True
                return NoLane.WATCH
            if not trusted:
                return NoLane.UNTRUSTED
            taken = self._ready.take()
            if self.can_watch and not self._has_watcher:
                shared_lane = taken[-1]
                if (isinstance(shared_lane, SharedLane) and len(shared_lane.queue) > 1) or self._list_blocking():
                    self._call_watcher()
            return self._begin(taken, now)

    @under_lock  # the line's runner takes no more of it, and lanes are ready or not
    def split_blocking_lanes(self, before: WatchedLanes, now: float, *, in_time: bool) -> WatchedLanes:
        """Sort the lines into lanes that hold up others, and did at the glance before, if their handlers wait or are
        slow; what was seen now."""
        shared_lanes = {
            shared_lane: LaneProgress(shared_lane.started, len(shared_lane.queue))
            for shared_lane in self._list_blocking()
        }
        waits = in_time and before.in_time
        blocking = [
            shared_lane
            for shared_lane in before.shared_lanes
            if shared_lane in shared_lanes and shared_lane.current is not None
        ]  # else no handler runs
        for shared_lane in [
            shared_lane for shared_lane in blocking if now - shared_lane.started >= LANE_COST * self._count_in_lists()
        ]:
            if waits or _is_lane_slow(before.shared_lanes[shared_lane], shared_lanes[shared_lane], before.at, now):
                self._split_period.begin(now)
                self._split([shared_lane])
                del shared_lanes[shared_lane]
        return WatchedLanes(now, in_time, shared_lanes)

    def split_if_waiting(self, shared_lane: SharedLane, now: float) -> None:
        """Sort a line whose handler waits in the event loop into lanes, for whoever is free to run them."""
        if self._concurrency > 1 and (self.can_watch or (shared_lane.queue and self._has_free_runner)):
            with self._lock:  # as in `split_blocking_lanes`
                if self.can_watch:
                    self._split_period.begin(now)
                self._split([shared_lane])

    @under_lock  # a line that gets longer is seen by who watches, or somebody is called to
    def stop_watching(self, *, called: bool) -> bool:
        """Watch no more, if the runner that watches was `called`, or nothing holds up others; True then."""
        self._has_watcher = not called and bool(self._list_blocking())
        return not self._has_watcher

    @under_lock  # the lanes end and their place is free as one
    def end(self, lanes: Sequence[Lane]) -> None:
        """End lanes that ran as one handler, whose place is free for another."""
        self._end(lanes)
        self._fill_slot()

    @under_lock  # a lane is found and begun as one: no runner takes it too
    def take(self, to: Destination, per_lane: int, most: int, now: float) -> list[Lane]:
        """Lanes that wait with an event for this handler, for a list of so many events more, of which each gives
        `per_lane` at most; they run from now on."""
        joining = partial(_count_joining, to, per_lane)
        if to.limit_key is not None and self.limited is not None:
            found = self.limited.take_joining(joining, most, to.limit_key)
        else:
            found = self._ready.take_joining(joining, most)
        self._joined.update(found)
        return self._begin(found, now)

    @under_lock  # read when the lane ends
    def hand_to_transactor(self, lane: Lane) -> None:
        """The next event of this lane is transactional: when it ends it does not go on with a runner."""
        self._transactional.add(lane)

    @under_lock  # a runner sees the stop, or is idle when it is called
    def stop(self) -> None:
        """Start no handler any more; runners end when theirs do."""
        self._stopped = True
        while self._call_runner():
            pass

    def disown(self) -> None:
        """In a forked process: nothing runs or is saved here any more."""
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]  # a thread may hold it which this process has not
        with self._lock:  # nobody else goes on here: for what wants it held
            self._state.is_forked = self._stopped = True
            for partition in {*self._state.partitions.values(), *(lane.partition for lane in self._running)}:
                partition.lose()

    # Whoever watches.

    @under_lock  # lanes begin and end meanwhile
    def running(self) -> list[Lane]:
        """The lanes whose handlers run now."""
        return [lane for lane in self._running if lane.current is not None and not lane.has_ended(lane.current)]

    @under_lock  # as in `running`
    def hung_since(self) -> float | None:
        """Return since when (monotonic seconds) lanes are ready and no runner takes one, though no handler runs: all of
        them hang in something else. None if that is not so."""
        taken = self._hired >= self._concurrency and not self._idle and self._ready and not self._stopped
        handles = any(lane.current is not None and not lane.has_ended(lane.current) for lane in self._running)
        return self._moved_at if taken and not handles else None

    @under_lock  # as in `running`
    def list_handling(self) -> list[Lane]:
        """One lane for each handler that runs now: of a list its first."""
        return [lane for lane in self._running if lane.current is not None and lane not in self._joined]

    # For the engine itself. Lock held.

    def run_or_watch(self, shared_lanes: Sequence[SharedLane]) -> None:
        """More events wait in these lines: they are to be run, or watched if they run. Lock held."""
        self.make_ready([shared_lane for shared_lane in shared_lanes if not shared_lane.running])
        if not self._has_watcher and any(shared_lane.running for shared_lane in shared_lanes):
            self._call_watcher()

    def make_ready(self, lanes: Sequence[Lane], *, due: bool = False) -> None:
        """Have runners take these lanes, which have something to do, when they are free. Lock held."""
        for lane in lanes:
            lane.is_active = not lane.partition.shared_lane.runs_key(
                lane.key
            )  # else it is ready when the turn of the line ends
        lanes = [lane for lane in lanes if lane.is_active]
        self._ready.add(lanes, due=due)
        for _ in range(min(len(lanes), self._concurrency)):
            if not self._call_runner() and not self._hire_runner():
                return

    def evict_slow(self, partitions: Collection[Partition], now: float) -> None:
        """Let long-running handlers not hold up these partitions any more, whose windows are full. Lock held."""
        late = now - SLOW_AFTER
        for lane in [lane for lane in self._running if lane.started < late and lane.partition in partitions]:
            self._outcomes.evict_slow(lane)
        if self.limited is not None:
            evictable = self.limited.evictable(partitions, late, now)
            for lane in evictable.oversized:
                self._outcomes.park_behind_head(lane)
            for lane, limit_key, delay in evictable.evicted:
                self.limited.evict(limit_key, lane, self._outcomes.evict(lane, delay, now))

    def begin(self, lane: Lane, now: float) -> None:
        """The lane runs, but not by a runner: its events are transactional. Lock held."""
        self._begin([lane], now)

    def end_transactional(self, lane: Lane) -> None:
        """The lane does not run any more; if it has more events it goes on with the transactor. Lock held."""
        self._transactional.add(lane)
        self._end([lane])
        self._fill_slot()

    def limit(self, limited: LimitedQueue | None) -> None:
        """Have lanes wait there for their turns from now on, if that is not None. Lines know no turns. Lock held."""
        self.limited, self._ready = limited, self.unlimited if limited is None else limited
        if limited is not None:
            self._split(each.shared_lane for each in self._state.partitions.values() if not each.is_stopping)

    def call_runners(self, lanes: int) -> None:
        """Call or hire runners for so many lanes. Lock held."""
        for _ in range(min(lanes, self._concurrency)):
            if not self._call_runner() and not self._hire_runner():
                return

    @property
    def _has_free_runner(self) -> bool:
        return bool(self._idle) or self._hired < self._concurrency

    def _call_runner(self) -> bool:
        """Call a runner that waits; False if none does."""
        if not self._idle:
            return False
        self._idle -= 1
        self._state.wakes.run()
        return True

    def _hire_runner(self) -> bool:
        """Let there be one runner more; False if there are all."""
        if self._hired >= self._concurrency:
            return False
        self._hired += 1
        self._state.wakes.hire()
        return True

    def _fill_slot(self) -> None:
        """Have somebody look for a lane for the place that has got free."""
        if not self._call_runner() and self._ready:
            self._hire_runner()

    def _call_watcher(self) -> None:
        """Have somebody look who will find nothing to run, if there is anybody."""
        if not self._call_runner():
            self._hire_runner()

    def _split(self, shared_lanes: Iterable[SharedLane]) -> None:
        for shared_lane in shared_lanes:
            shared_lane.partition.split_shared_lane()
            self.make_ready(shared_lane.partition.take_split_lanes())

    def _begin(self, lanes: list[Lane], now: float) -> list[Lane]:
        if not self._running:
            self._state.wakes.busy(True)
        for lane in lanes:
            partition = lane.partition
            lane.running, lane.started, lane.incarnation = True, now, partition.incarnation
            partition.running += 1
        self._running.update(lanes)
        return lanes

    def _list_blocking(self) -> list[SharedLane]:
        """The lines that run and hold up others of their partition."""
        shared_lanes = (
            lane for lane in self._running if isinstance(lane, SharedLane) and not lane.partition.is_stopping
        )
        return [shared_lane for shared_lane in shared_lanes if shared_lane.queue or shared_lane.has_unreported_lanes]

    def _count_in_lists(self) -> int:
        """The number of events in lists that run: while one takes less time than their lanes would, none is needed."""
        return sum(len(lane.in_hand) for lane in self._running if isinstance(lane, SharedLane))

    def _end(self, lanes: Sequence[Lane]) -> None:
        self._outcomes.end(lanes)
        if self.limited is not None:
            self.limited.ended(lanes)
        again = [each for lane in lanes for each in self._end_lane(lane)]
        if again:
            self.make_ready(again)

    def _end_lane(self, lane: Lane) -> Iterable[Lane]:
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
        is_transactional = bool(self._transactional) and lane in self._transactional
        if is_transactional:
            self._transactional.discard(lane)
        if lane.queue and not partition.is_stopping:
            if not is_transactional:
                return (lane,)
            self.transact(lane)
            return ()
        lane.is_active = False
        if not lane.queue:
            partition.drop_lane(lane)
        if chains := partition.parked.chains:
            for key in list(chains) if isinstance(lane, SharedLane) else [lane.key]:
                self._state.wake(partition, key)
        if partition.is_stopping:
            self._state.mark_dirty(partition)
        elif isinstance(lane, SharedLane):
            return partition.take_split_lanes()
        return ()


def _is_lane_slow(before: LaneProgress, pace: LaneProgress, then: float, now: float) -> bool:
    if pace.started == before.started:
        return now - pace.started >= SPLIT_SLOWER
    return 0 < before.waiting - pace.waiting <= (now - then) / SPLIT_SLOWER


def _count_joining(to: Destination, per_lane: int, lane: Lane) -> int:
    if lane.partition.is_stopping or not lane.queue:
        return 0
    first = lane.queue[0]
    fits = to.routes[(first if lane.claim is not None else first.record)[ROUTE]] is to.endpoint
    return min(per_lane, len(lane.queue)) if fits else 0
