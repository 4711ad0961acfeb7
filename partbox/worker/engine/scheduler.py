"""The scheduler of lanes: gives ready lanes to runner threads, and splits shared lanes that block other events. A lane
is with one runner at a time, so its events run in order, one by one."""

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

# Seconds after which a running handler no longer holds up its partition.
SLOW_AFTER = 1.0
# Seconds. A shared lane whose events take longer is split if a runner is free.
SPLIT_SLOWER = 0.001
# Seconds. An event in a lane by key costs less than this.
LANE_COST = 0.00002


class NoLane(Enum):
    """The reason why a runner gets no events to handle."""

    IDLE = "no lane is ready"
    WATCH = "no lane is ready, and a shared lane runs that may have to be split"
    FULL = "as many handlers run as are allowed"
    UNTRUSTED = "the lease may be over"
    STOPPED = "no handler starts any more"


class LaneProgress(NamedTuple):
    """The start time of a queue's current event, and the number of events that wait behind that event.

    The queue is a running shared lane."""

    # Monotonic seconds.
    started_at: float
    waiting_count: int


class WatchedLanes(NamedTuple):
    """A snapshot of running queues in which a slow or waiting handler may hold up events of other keys.

    It is taken at the time `checked_at`. The queues are shared lanes, for events of all keys."""

    # Monotonic seconds.
    checked_at: float
    # True if the watcher got the interpreter at once when its sleep was over.
    woke_in_time: bool
    shared_lanes: Mapping[SharedLane, LaneProgress]


# No wakeup is missed. A runner that finds no lane is counted as idle under the same lock in which it looked, and then
# waits for a call. A thread that makes a lane ready, or frees a slot, takes one runner off the idle count and makes one
# call (`wakes.wake_runner`). Calls are kept until a runner takes them, so a call that comes before its runner waits is
# not lost.
#
# No slot stays empty. The number of calls plus the idle count is the number of runners that wait or are about to wait.
# Any of these runners may take a call: the runner looks again, and counts as idle again if it finds nothing. If no
# runner is idle and fewer than `concurrency` are hired, one more is hired (`wakes.hire_runner`), and looks before it
# waits. If all are hired and no runner is idle, each runner asks by itself at the end of its turn.
#
# A shared lane is split when a runner is free and the runner of the lane waits in a handler. One idle runner watches:
# it sleeps for a moment, checks, and checks again. A watcher that woke in time both times got the interpreter at once.
# So no thread computes, and other runners could run the events behind. If other threads do compute, the lane is split
# only if its events take so long that lanes by key cost little in comparison. The interpreter switches between threads,
# so between two checks the runner of the lane has nearly always had its turn. After a split, new events get lanes by
# key at once for a while (`SplitPeriod`).
#
# Every shared lane is watched. When a shared lane starts or grows, or when the watcher finds a lane to run, the next
# free runner is called or hired to watch. The event loop needs no watcher, because a handler reports that it waits
# (`split_if_waiting`). A task of the loop that finds no lane knows that all running lanes wait, since only one task
# computes at a time. So the loop splits a lane as soon as a slot is free, and not before.
class LaneScheduler:
    """The scheduler that gives events to runner threads, the event loop and the transactor.

    It gives lanes, which are queues of events of one key. `shared_lanes` is true if new events may wait in shared
    lanes, which depends on the kinds of the handlers."""

    # The method that takes a lane whose next event is transactional. `Transactions` sets it. The caller holds the lock.
    queue_transactional: Callable[[Lane], object]

    def __init__(
        self, state: EngineState, outcomes: Outcomes, concurrency: int, queue: RunQueue, *, shared_lanes: bool = False
    ) -> None:
        self._state = state
        self._lock = state.lock
        self._outcomes = outcomes
        self._concurrency = concurrency
        self._ready_queue = self.unlimited_queue = queue
        # Stands before the `unlimited_queue` queue while any handler has a limit.
        self.limited_queue: LimitedQueue | None = None
        self._running_lanes: set[Lane] = set()
        # Running lanes that have joined the list of another lane.
        self._joined_lanes: set[Lane] = set()
        # Running lanes whose next event is transactional.
        self._transactional_lanes: set[Lane] = set()
        # Runners that exist, at most `concurrency`.
        self._hired_count = 0
        # Hired runners that wait and have not been called.
        self._idle_count = 0
        self._is_stopped = False
        # When a runner last asked for a lane or ended one, in monotonic seconds.
        self._moved_at = 0.0
        self._uses_shared_lanes = shared_lanes
        self._split_period = SplitPeriod()
        # True if the runners are threads, which can watch shared lanes.
        self.can_watch = False
        # True while an idle runner watches shared lanes.
        self._has_watcher = False

    @property
    def may_share_lanes(self) -> bool:
        """True if new events of all keys may wait in one shared queue per partition. The caller holds the lock."""
        # A shared lane costs less than lanes by key.
        return self._uses_shared_lanes and self.limited_queue is None and not self._split_period.is_active

    @property
    def is_full(self) -> bool:
        """True if no further handler may start because of the `concurrency` limit. The caller holds the lock."""
        # A list of events counts as one handler, so lanes that have joined the list of another lane are subtracted.
        # As many handlers run as `concurrency` allows.
        return len(self._running_lanes) - len(self._joined_lanes) >= self._concurrency

    @property
    def is_supplied(self) -> bool:
        """True if enough event queues are ready to keep every runner busy. The caller holds the lock."""
        # At least as many lanes are ready to run as handlers may run at once.
        return len(self._ready_queue) >= self._concurrency

    def take_next_lanes(self, ended: Sequence[Lane], now: float, *, trusted: bool, waits: bool) -> list[Lane] | NoLane:
        """End a runner's finished event queues and return the next ones, or the reason why there are none."""
        # The runner has run the lanes in `ended`. With IDLE or FULL, a runner that `waits` must wait for a call.
        # `trusted` means that a handler may start at `now` (monotonic seconds), within the lease.
        # Lanes end, the next lanes are found, and they start or the runner counts as idle, all under one lock: no call
        # is missed.
        with self._lock:
            self._end_lanes(ended)
            self._moved_at = now
            if self._is_stopped:
                return NoLane.STOPPED
            self._split_period.end_if_over(now)
            full = len(self._running_lanes) - len(self._joined_lanes) >= self._concurrency
            if not full and not self._ready_queue and not self.can_watch:
                # Without watchers one task runs at a time, so the caller knows that all other handlers wait.
                self._split_lanes(self._list_blocking())
            if self.limited_queue is not None:
                self.limited_queue.advance_clock(now)
                if self.limited_queue.advance_timer():
                    self._state.wakes.wake_poller()
            if full or not self._ready_queue:
                # The caller of a runner takes this off again.
                self._idle_count += waits
                if full or not waits or not self.can_watch or self._has_watcher or not self._list_blocking():
                    return NoLane.FULL if full else NoLane.IDLE
                self._has_watcher = True
                return NoLane.WATCH
            if not trusted:
                return NoLane.UNTRUSTED
            taken = self._ready_queue.take()
            if self.can_watch and not self._has_watcher:
                shared_lane = taken[-1]
                if (isinstance(shared_lane, SharedLane) and len(shared_lane.queue) > 1) or self._list_blocking():
                    self._call_watcher()
            return self._begin_lanes(taken, now)

    @under_lock
    def split_blocking_lanes(self, before: WatchedLanes, now: float, *, in_time: bool) -> WatchedLanes:
        """Split queues in which a slow handler holds up events of other keys. Return the queues to check next time."""
        # The queues are shared lanes.
        # Slow or waiting handlers held up events at the check `before` and still do. The returned shared lanes are for
        # the next check. `in_time` is true if the watcher got the interpreter at once.
        # Under the lock the runner of a lane takes no more events from it, and lanes are either ready or not.
        shared_lanes = {
            shared_lane: LaneProgress(shared_lane.started_at, len(shared_lane.queue))
            for shared_lane in self._list_blocking()
        }
        waits = in_time and before.woke_in_time
        blocking = [
            shared_lane
            for shared_lane in before.shared_lanes
            # Without a current event no handler runs.
            if shared_lane in shared_lanes and shared_lane.current_event is not None
        ]
        # A list that has run for less time than its lanes would cost needs no split.
        for shared_lane in [
            shared_lane
            for shared_lane in blocking
            if now - shared_lane.started_at >= LANE_COST * self._count_in_lists()
        ]:
            if waits or _is_lane_slow(
                before.shared_lanes[shared_lane], shared_lanes[shared_lane], before.checked_at, now
            ):
                self._split_period.begin(now)
                self._split_lanes([shared_lane])
                del shared_lanes[shared_lane]
        return WatchedLanes(now, in_time, shared_lanes)

    def split_if_waiting(self, shared_lane: SharedLane, now: float) -> None:
        """Split a shared queue while its async handler waits, so that events of other keys can run."""
        # The shared lane is split into lanes by key, if a slot is free for them.
        if self._concurrency > 1 and (self.can_watch or (shared_lane.queue and self._has_free_runner)):
            # No runner may take the shared lane while the lane is split.
            with self._lock:
                if self.can_watch:
                    self._split_period.begin(now)
                self._split_lanes([shared_lane])

    @under_lock
    def stop_watching(self, *, called: bool) -> bool:
        """End the watch over shared queues if it is not needed any more. Return False to watch on."""
        # The watch ends, and True is returned, if its runner was `called` to other work or no shared lane blocks other
        # events.
        # Under the lock, a lane that grows is either seen by the watcher, or a runner is called to watch it.
        self._has_watcher = not called and bool(self._list_blocking())
        return not self._has_watcher

    @under_lock
    def end_lanes(self, lanes: Sequence[Lane]) -> None:
        """End event queues whose events ran in one handler call, and offer the free slot to another runner."""
        # The lanes end and their slot gets free in one step.
        self._end_lanes(lanes)
        self._fill_slot()

    # Two runners must not take the same lane.
    @under_lock
    def take_joining(self, to: Destination, per_lane: int, most: int, now: float) -> list[Lane]:
        """Start and return event queues whose next events can be handled in one list by the handler `to`."""
        # The lanes are ready to run. Each lane gives at most `per_lane` events, and all lanes together `most`.
        joining = partial(_count_joining, to, per_lane)
        if to.limit_key is not None and self.limited_queue is not None:
            found = self.limited_queue.take_joining(joining, most, to.limit_key)
        else:
            found = self._ready_queue.take_joining(joining, most)
        self._joined_lanes.update(found)
        return self._begin_lanes(found, now)

    # The lane leaves this runner and joins the transactor's queue in one step.
    @under_lock
    def hand_to_transactor(self, lane: Lane) -> None:
        """Let the transactor take over an event queue, because its next event must run in a transaction."""
        # The lane is running.
        # The lane goes to the transactor when it ends, because its next event has a transactional handler.
        # Read when the lane ends.
        self._transactional_lanes.add(lane)

    @under_lock
    def stop(self) -> None:
        """Stop starting handlers in this process."""
        # Runners exit when their current handlers have ended.
        self._is_stopped = True
        # Under the lock, each runner either sees the stop when it looks, or counts as idle and is called here.
        while self._call_runner():
            pass

    def disown(self) -> None:
        """Give up all partitions in a forked child process, which has only a copy of them."""
        # No handler starts there and nothing is saved any more.
        # The lock may be held by a thread of the parent, which does not exist in this process.
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]
        with self._lock:
            # No other thread exists in this process. The lock is only held for methods that need it.
            self._state.is_forked = self._is_stopped = True
            for partition in {*self._state.partitions.values(), *(lane.partition for lane in self._running_lanes)}:
                partition.lose()

    @under_lock
    def list_running(self) -> list[Lane]:
        """Return the event queues whose handler runs now and has no result so far."""
        # The lock is needed because lanes start and end meanwhile.
        return [
            lane
            for lane in self._running_lanes
            if lane.current_event is not None and not lane.has_ended(lane.current_event)
        ]

    # Runners add and remove lanes meanwhile.
    @under_lock
    def find_hang_start(self) -> float | None:
        """Return the time (monotonic seconds) since which all runners hang outside of handlers, or None."""
        # The runners hang if no runner takes a ready lane although no handler runs. All runners are hired and busy, and
        # none of them is in a handler: they hang somewhere else.
        taken = (
            self._hired_count >= self._concurrency
            and not self._idle_count
            and self._ready_queue
            and not self._is_stopped
        )
        handles = any(
            lane.current_event is not None and not lane.has_ended(lane.current_event) for lane in self._running_lanes
        )
        return self._moved_at if taken and not handles else None

    # Runners add and remove lanes meanwhile.
    @under_lock
    def list_handling(self) -> list[Lane]:
        """Return one event queue for each handler call that runs now."""
        # A call with a list of events from several lanes counts once, with its first lane.
        return [
            lane for lane in self._running_lanes if lane.current_event is not None and lane not in self._joined_lanes
        ]

    def run_or_watch(self, shared_lanes: Sequence[SharedLane]) -> None:
        """Let runners take shared event queues that got more events. The caller holds the lock."""
        # The shared lanes are queued. If a lane runs already, a runner is called to watch whether it blocks others.
        self.make_ready([shared_lane for shared_lane in shared_lanes if not shared_lane.is_running])
        if not self._has_watcher and any(shared_lane.is_running for shared_lane in shared_lanes):
            self._call_watcher()

    def make_ready(self, lanes: Sequence[Lane], *, due: bool = False) -> None:
        """Let event queues be run: wake idle runners or hire new ones. The caller holds the lock."""
        # The lanes are queued to be run. `due` means that they hold parked events whose time has come.
        for lane in lanes:
            # A lane whose key the shared lane runs becomes ready when that turn ends.
            lane.is_active = not lane.partition.shared_lane.runs_key(lane.key)
        lanes = [lane for lane in lanes if lane.is_active]
        self._ready_queue.add(lanes, due=due)
        if self.limited_queue is not None:
            self._evict_surplus(self.limited_queue)
        for _ in range(min(len(lanes), self._concurrency)):
            if not self._call_runner() and not self._hire_runner():
                return

    def evict_slow(self, partitions: Collection[Partition], now: float) -> None:
        """Move slow events of these partitions to database rows, so that more can be read. The caller holds the
        lock."""
        # The partitions have full windows, and parking the slow events lets their cursors move on. A running event is
        # slow after `SLOW_AFTER` seconds. Events that wait too long for a permit are parked as well.
        late = now - SLOW_AFTER
        for lane in [lane for lane in self._running_lanes if lane.started_at < late and lane.partition in partitions]:
            self._outcomes.evict_slow(lane)
        if self.limited_queue is not None:
            evictable = self.limited_queue.take_evictable(partitions, late, now)
            for lane in evictable.oversized:
                self._outcomes.park_behind_head(lane)
            for each in evictable.evicted:
                self.limited_queue.note_evicted(each.limit_key, each.lane, self._outcomes.evict_lane(each, now))
            self._evict_surplus(self.limited_queue)

    def begin_transactional(self, lane: Lane, now: float) -> None:
        """Mark an event queue as running in a transaction. The caller holds the lock."""
        # The transactor handles events in transactions. Other lanes run in a runner.
        self._begin_lanes([lane], now)

    def end_transactional(self, lane: Lane) -> None:
        """Record that an event queue no longer runs in a transaction. The caller holds the lock."""
        # The transactor has run the lane.
        # If the lane has more events, they stay with the transactor.
        self._transactional_lanes.add(lane)
        self._end_lanes([lane])
        self._fill_slot()

    def set_limited_queue(self, limited: LimitedQueue | None) -> None:
        """Begin or end the use of rate limits for handlers. The caller holds the lock."""
        # Ready lanes are queued in `limited`, or in the unlimited queue if `limited` is None.
        self.limited_queue, self._ready_queue = limited, self.unlimited_queue if limited is None else limited
        if limited is not None:
            # A limited queue gives turns to lanes by key, so no event may wait in a shared lane.
            self._split_lanes(each.shared_lane for each in self._state.partitions.values() if not each.is_stopping)

    def call_runners(self, lanes: int) -> None:
        """Wake idle runners, or hire new ones, for this number of ready event queues. The caller holds the lock."""
        for _ in range(min(lanes, self._concurrency)):
            if not self._call_runner() and not self._hire_runner():
                return

    def _evict_surplus(self, limited: LimitedQueue) -> None:
        for each in limited.take_surplus():
            row = self._outcomes.evict_lane(each, self._moved_at)
            note = limited.note_evicted if each.is_closed else limited.note_surplus
            note(each.limit_key, each.lane, row)

    @property
    def _has_free_runner(self) -> bool:
        return bool(self._idle_count) or self._hired_count < self._concurrency

    def _call_runner(self) -> bool:
        # False means that no runner is idle.
        if not self._idle_count:
            return False
        self._idle_count -= 1
        self._state.wakes.wake_runner()
        return True

    def _hire_runner(self) -> bool:
        # False means that all `concurrency` runners exist already.
        if self._hired_count >= self._concurrency:
            return False
        self._hired_count += 1
        self._state.wakes.hire_runner()
        return True

    def _fill_slot(self) -> None:
        if not self._call_runner() and self._ready_queue:
            self._hire_runner()

    def _call_watcher(self) -> None:
        if not self._call_runner():
            self._hire_runner()

    def _split_lanes(self, shared_lanes: Iterable[SharedLane]) -> None:
        for shared_lane in shared_lanes:
            shared_lane.partition.split_shared_lane()
            self.make_ready(shared_lane.partition.take_split_lanes())

    def _begin_lanes(self, lanes: list[Lane], now: float) -> list[Lane]:
        if not self._running_lanes:
            self._state.wakes.report_busy(True)
        for lane in lanes:
            partition = lane.partition
            lane.is_running, lane.started_at, lane.incarnation = True, now, partition.incarnation
            partition.running_count += 1
        self._running_lanes.update(lanes)
        return lanes

    def _list_blocking(self) -> list[SharedLane]:
        # These are the running shared lanes in which other events of the partition wait behind the current one.
        shared_lanes = (
            lane for lane in self._running_lanes if isinstance(lane, SharedLane) and not lane.partition.is_stopping
        )
        return [shared_lane for shared_lane in shared_lanes if shared_lane.queue or shared_lane.has_unreported_lanes]

    def _count_in_lists(self) -> int:
        # The result counts the events from shared queues that are handled now in calls with a list.
        # The queues are shared lanes.
        return sum(len(lane.in_hand) for lane in self._running_lanes if isinstance(lane, SharedLane))

    def _end_lanes(self, lanes: Sequence[Lane]) -> None:
        self._outcomes.end_lanes(lanes)
        if self.limited_queue is not None:
            self.limited_queue.return_permits(lanes)
        again = [each for lane in lanes for each in self._end_lane(lane)]
        if again:
            self.make_ready(again)

    def _end_lane(self, lane: Lane) -> Iterable[Lane]:
        """End the run of an event queue, and return the queues that runners go on with."""
        # These are the lane itself if it has more events, or the lanes into which it was split.
        partition = lane.partition
        self._running_lanes.discard(lane)
        if self._joined_lanes:
            self._joined_lanes.discard(lane)
        if not self._running_lanes:
            self._state.wakes.report_busy(False)
        lane.is_running, lane.current_event = False, None
        if isinstance(lane, SharedLane):
            lane.end_turn()
        partition.running_count -= 1
        is_transactional = bool(self._transactional_lanes) and lane in self._transactional_lanes
        if is_transactional:
            self._transactional_lanes.discard(lane)
        if lane.queue and not partition.is_stopping:
            if not is_transactional:
                return (lane,)
            self.queue_transactional(lane)
            return ()
        lane.is_active = False
        if not lane.queue:
            partition.drop_lane(lane)
        if chains := partition.parked.chains:
            for key in list(chains) if isinstance(lane, SharedLane) else [lane.key]:
                self._state.schedule_wakeup(partition, key)
        if partition.is_stopping:
            self._state.mark_dirty(partition)
        elif isinstance(lane, SharedLane):
            return partition.take_split_lanes()
        return ()


def _is_lane_slow(before: LaneProgress, pace: LaneProgress, then: float, now: float) -> bool:
    if pace.started_at == before.started_at:
        return now - pace.started_at >= SPLIT_SLOWER
    return 0 < before.waiting_count - pace.waiting_count <= (now - then) / SPLIT_SLOWER


def _count_joining(to: Destination, per_lane: int, lane: Lane) -> int:
    if lane.partition.is_stopping or not lane.queue:
        return 0
    first = lane.queue[0]
    fits = to.routes[(first if lane.claim is not None else first.record)[ROUTE]] is to.endpoint
    # With circuits by value, lanes of other values may wait in the same line.
    fits = fits and (lane.claim is not None or to.fits is None or to.fits(first))
    return min(per_lane, len(lane.queue)) if fits else 0
