"""Runs handlers: takes lanes that have something to do and walks them, one event after the other.

Two queues of ready lanes, of fresh events and of parked ones that are due, share the handlers 2:1. A runner thread takes
one lane at a time; `async def` handlers go on in one event loop, and the runner turns to the next lane. `concurrency`
bounds the handlers in progress of both kinds. The one lock here guards everything that the threads of a process share
about partitions; it is taken once a lane, not once an event.
"""

import heapq
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any

from partbox.codecs import Codecs
from partbox.events import DeliveredEvent
from partbox.handlers import Handler, Routes
from partbox.rules.parking import ParkedRow, Verdict, judge, unroutable
from partbox.worker.lane import Key, Lane
from partbox.worker.loop import Loop
from partbox.worker.partition import Partition
from partbox.worker.slot import RUNNING_SINCE, Slot, boottime

log = logging.getLogger("partbox.worker")

LANE_TURN = 0.02  # seconds after which a lane's finished events are recorded and other lanes get their turn
BUNDLE = 64
TRUST_SPAN = 0.001  # the lease is looked at again when the wall clock has moved by this much
UNTRUSTED = 0.02  # seconds between two looks at a lease that is over
STUCK = 1.0  # a handler that runs longer does not hold up its partition any more


class Dispatcher:
    """The lanes of one process and the handlers in progress."""

    def __init__(
        self, routes: Routes, slot: Slot, codecs: Codecs, *, concurrency: int, on_unroutable: str, error_limit: int,
        subscription: str,
    ) -> None:
        self.lock = threading.Lock()
        self._work = threading.Condition(self.lock)
        self.progressed = threading.Event()  # something to save
        self.codecs = codecs
        self.subscription = subscription
        self.partitions: dict[int, Partition] = {}
        self.dirty: set[Partition] = set()
        self._routes = routes
        self._slot = slot
        self._concurrency = concurrency
        self._on_unroutable = on_unroutable
        self._error_limit = error_limit
        self._fresh: deque[Lane] = deque()
        self._due: deque[Lane] = deque()
        self._turn = 0
        self._running: set[Lane] = set()
        self._idle = 0
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._loop = Loop()
        self._trusted_at = 0.0
        self._wakeups: list[tuple[float, int, Partition, int, Key]] = []
        self._ticket = count()

    # Called by the other threads, with the lock held.

    def ready(self, lanes: Sequence[Lane], *, due: bool = False) -> None:
        """These lanes have something to do; runners take them when they are free."""
        for lane in lanes:
            lane.active = True
        (self._due if due else self._fresh).extend(lanes)
        self._summon(min(len(lanes), self._concurrency))

    def _summon(self, runners: int) -> None:
        for _ in range(runners):
            if not self._notify():
                if len(self._threads) < self._concurrency:
                    self._start_runner()
                return

    def touch(self, partition: Partition) -> None:
        """The partition has something to save."""
        if not self.dirty:
            self.progressed.set()
        self.dirty.add(partition)

    def wake(self, partition: Partition, key: Key) -> None:
        """Note when the head of a blocked key may run, if it may by itself."""
        chain = partition.chains.get(key)
        at = chain.wakes_at() if chain else None
        if at is not None:
            heapq.heappush(self._wakeups, (at, next(self._ticket), partition, partition.life, key))

    def awake(self, now: float, most: int) -> list[tuple[Partition, Key, list[ParkedRow]]]:
        """Blocked keys whose head may run now, with the rows to run; these count as loaded from here on."""
        found: list[tuple[Partition, Key, list[ParkedRow]]] = []
        while self._wakeups and self._wakeups[0][0] <= now and len(found) < most:
            _, _, partition, life, key = heapq.heappop(self._wakeups)
            chain = partition.chains.get(key)
            if chain is None or partition.life != life or partition.stopping:
                continue
            rows = chain.runnable(now)
            for row in rows:
                row.loaded = True
            if rows:
                found.append((partition, key, rows))
            elif (at := chain.wakes_at()) is not None and at > now:
                self.wake(partition, key)
        return found

    def next_wakeup(self) -> float | None:
        """When `awake` may find something (monotonic seconds)."""
        return self._wakeups[0][0] if self._wakeups else None

    def unstick(self, partition: Partition, now: float) -> None:
        """Park what holds up a full window: handlers that run for long, `ready`, and behind them their key, `held`."""
        for lane in list(self._running):
            event = lane.current
            if lane.partition is not partition or now - lane.started < STUCK or event is None:
                continue
            if event.parked is None and event._row[1] not in partition.progress.finished:
                partition.park(event, Verdict("ready", event.attempt - 1, None, lane.key[0] is not None, None))
                event.parked.loaded = True
                lane.unstuck = event
                if lane.key in partition.chains:
                    partition.chains[lane.key].stuck = True
                self._hold_rest(lane)
                self.touch(partition)

    # Life.

    def stop(self) -> None:
        """Start no handler any more; runners end when theirs do."""
        with self.lock:
            self._stopped = True
            self._work.notify_all()

    def join(self, until: float) -> bool:
        """Wait for the runners until then (monotonic seconds); False if handlers still run. Async ones are cancelled."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._loop.stop()
        return not any(thread.is_alive() for thread in self._threads)

    def note_running(self) -> None:
        """Tell the supervisor since when the longest handler runs."""
        with self.lock:
            oldest = min((lane.started for lane in self._running if lane.current is not None), default=0.0)
        self._slot[RUNNING_SINCE] = boottime() - (time.monotonic() - oldest) if oldest else 0.0

    def running(self) -> list[DeliveredEvent]:
        """The events whose handlers run now."""
        with self.lock:
            return [lane.current for lane in self._running if lane.current is not None]

    # Runners.

    def _start_runner(self) -> None:
        thread = threading.Thread(target=self._run, name=f"partbox-handler-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        lanes: list[Lane] = []
        while lanes := self._next(lanes):
            turn_ends = lanes[0].started + LANE_TURN
            lanes = [lane for lane in lanes if self._drive(lane, turn_ends)]  # others go on in the event loop

    def _next(self, ended: list[Lane]) -> list[Lane]:
        """Ends these lanes and waits for the next to run; none when it is time to go."""
        while True:
            with self.lock:
                for lane in ended:
                    self._end(lane)
                ended = []
                if self._stopped:
                    return []
                if not (self._fresh or self._due) or len(self._running) >= self._concurrency:
                    self._idle += 1  # whoever notifies takes it off again
                    self._work.wait()
                    continue
                if self._trusted():
                    return self._begin(self._pick())
            time.sleep(UNTRUSTED)

    def _pick(self) -> list[Lane]:
        """The next lanes, two fresh ones to a due one. More than one where nobody else could take the others."""
        fresh, due = self._fresh, self._due
        if self._concurrency == 1 and not due:
            return [fresh.popleft() for _ in range(min(BUNDLE, len(fresh)))]
        self._turn = (self._turn + 1) % 3
        return [due.popleft() if due and (self._turn == 0 or not fresh) else fresh.popleft()]

    def _begin(self, lanes: list[Lane]) -> list[Lane]:
        if not self._running:
            self._slot[RUNNING_SINCE] = boottime()
        now = time.monotonic()
        for lane in lanes:
            partition = lane.partition
            lane.running, lane.started, lane.life = True, now, partition.life
            partition.running += 1
        self._running.update(lanes)
        return lanes

    def _end(self, lane: Lane) -> None:
        partition = lane.partition
        self._record(lane)
        self._running.discard(lane)
        if not self._running:
            self._slot[RUNNING_SINCE] = 0.0
        lane.running = False
        partition.running -= 1
        if lane.queue and not partition.stopping:
            self.ready([lane])
            return
        lane.active = False
        if not lane.queue:
            partition.lanes.pop(lane.key, None)
        if partition.chains and lane.key in partition.chains:
            self.wake(partition, lane.key)
        if partition.stopping:
            self.touch(partition)

    def _notify(self) -> bool:
        if not self._idle:
            return False
        self._idle -= 1
        self._work.notify()
        return True

    # One lane.

    def _drive(self, lane: Lane, turn_ends: float) -> bool:
        """Run the lane's sync handlers in this thread; False if an async one comes and it goes on in the event loop."""
        while (step := self._step(lane, turn_ends)) is not None:
            handler, event = step
            if handler.is_async:
                lane.queue.appendleft(event)
                self._loop.start(self._drive_async(lane, turn_ends))
                return False
            try:
                result = handler.call(event)
            except BaseException as error:  # also SystemExit: a handler does not end the process
                result = error
            if result is None and event.parked is None:
                lane.done.append(event._row[1:3])
            else:
                self._settle(lane, event, judge(handler, event.attempt - 1, result, self._error_limit), result)
        return True

    async def _drive_async(self, lane: Lane, turn_ends: float) -> None:
        """Run the lane's async handlers; a sync one that follows waits for a runner."""
        while (step := self._step(lane, turn_ends)) is not None:
            handler, event = step
            if not handler.is_async:
                lane.queue.appendleft(event)
                break
            result = await self._loop.call(handler.call, event, handler.timeout)
            self._settle(lane, event, judge(handler, event.attempt - 1, result, self._error_limit), result)
        with self.lock:
            self._end(lane)
            self._notify()

    def _step(self, lane: Lane, turn_ends: float) -> tuple[Handler, DeliveredEvent] | None:
        """The next event of the lane and its handler; None at the end of the lane, or of its turn.

        A turn ends after `LANE_TURN`, so that what is finished is recorded and other lanes get theirs.
        """
        partition, queue = lane.partition, lane.queue
        while queue and not partition.stopping and self._trusted():
            try:
                event = queue.popleft()
            except IndexError:  # cleared meanwhile
                break
            if partition.remembered and self._remembered(partition, event):
                continue
            row = event._row
            handler = self._routes.find(row[3], row[4])
            if handler is None:
                self._settle(lane, event, unroutable(self._on_unroutable, event.attempt - 1, _what(row)))
                continue
            now = time.monotonic()
            if now > turn_ends and lane.current is not None:
                queue.appendleft(event)
                break
            lane.started, lane.current = now, event
            return handler, event
        lane.current = None
        return None

    def _trusted(self) -> bool:
        """May a handler start now? The wall clock jumps over every pause of the process or its machine."""
        now = time.time()
        if -TRUST_SPAN < now - self._trusted_at < TRUST_SPAN:
            return True
        if not self._slot.trusted():
            return False
        self._trusted_at = now
        return True

    def _record(self, lane: Lane) -> None:
        """Note what the lane has done since it was last noted. Lock held."""
        partition, done = lane.partition, lane.done
        if partition.life != lane.life:  # read anew since the lane began: what is done will come again
            partition.remembered.update(done)
            lane.life = partition.life
        elif done and not partition.lost:
            if lane.unstuck is not None and lane.unstuck._row[1:3] in done:  # parked while it ran, done all the same
                done.remove(lane.unstuck._row[1:3])
                partition.done_parked(lane.unstuck)
            if done:
                partition.finish(done)
            self.touch(partition)
        lane.unstuck = None
        lane.done = []

    def _settle(self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None, result: object = None) -> None:
        """What a handler did with one event, where it is not simply done."""
        with self.lock:
            partition, life = lane.partition, lane.life
            lane.unstuck = None if lane.unstuck is event else lane.unstuck
            self._record(lane)
            if partition.lost:
                return
            if partition.life != life:
                if verdict is None:
                    partition.remembered.add(event._row[1:3])
                return
            if verdict is not None:
                partition.park(event, verdict)
                if event.parked.blocks:
                    self._hold_rest(lane)
            elif event.parked is not None:
                partition.done_parked(event)
            else:
                partition.finish([event._row[1:3]])
            self.touch(partition)
        if verdict is not None:
            _report(event, verdict, result)

    def _hold_rest(self, lane: Lane) -> None:
        for event in lane.queue:
            lane.partition.hold(event)
        lane.queue.clear()

    def _remembered(self, partition: Partition, event: DeliveredEvent) -> bool:
        """Whether this event, read again after a lost connection, was done before."""
        with self.lock:
            pair = event._row[1:3]
            if pair not in partition.remembered:
                return False
            partition.remembered.discard(pair)
            if event.parked is not None:
                partition.done_parked(event)
            else:
                partition.finish([pair])
            self.touch(partition)
            return True


def _what(row: tuple[Any, ...]) -> str:
    return f"event type {row[3]!r} of aggregate type {row[4]!r}"


def _report(event: DeliveredEvent, verdict: Verdict, result: object) -> None:
    error = result if isinstance(result, BaseException) else None
    if verdict.state == "dead":
        log.error("%r is dead after %d attempts: %s", event, verdict.attempts, verdict.error, exc_info=error)
    else:
        log.info("%r is %s, due in %.3g s: %s", event, verdict.state, verdict.delay or 0, verdict.error)
