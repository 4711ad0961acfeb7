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
from collections.abc import Generator
from itertools import count
from typing import Any

from partbox.codecs import Codecs
from partbox.events import DeliveredEvent
from partbox.handlers import Handler, Routes
from partbox.rules.parking import ParkedRow, Verdict, judge, unroutable
from partbox.worker.lane import Key, Lane
from partbox.worker.loop import Loop
from partbox.worker.partition import Pair, Partition
from partbox.worker.slot import RUNNING_SINCE, Slot, boottime

log = logging.getLogger("partbox.worker")

LANE_TURN = 0.02  # seconds after which a lane's finished events are recorded and, if others wait, its turn ends
TRUST_SPAN = 0.001  # the lease is looked at again when the wall clock has moved by this much
UNTRUSTED = 0.02  # seconds between two looks at a lease that is over
STUCK = 1.0  # a handler that runs longer does not hold up its partition any more

Walk = Generator[tuple[Handler, DeliveredEvent], object, None]


class Dispatcher:
    """The lanes of one process and the handlers in progress."""

    def __init__(
        self, routes: Routes, slot: Slot, codecs: Codecs, *, concurrency: int, on_unroutable: str, error_limit: int,
        subscription: str,
    ) -> None:
        self.lock = threading.Condition(threading.Lock())
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

    def ready(self, lane: Lane, *, due: bool = False) -> None:
        """The lane has something to do; a runner takes it when one is free."""
        lane.active = True
        (self._due if due else self._fresh).append(lane)
        if not self._notify() and len(self._threads) < self._concurrency:
            self._start_runner()

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
        found = []
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
            if lane.partition is not partition or now - lane.started < STUCK or lane.current is None:
                continue
            event = lane.current
            if event.parked is None and not event._row[1] in partition.progress.finished:
                partition.park(event, Verdict("ready", event.attempt - 1, None, lane.key[0] is not None, None))
                row: ParkedRow = event.parked
                row.loaded = True
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
            self.lock.notify_all()

    def join(self, until: float) -> bool:
        """Wait for the runners until then (monotonic seconds); False if handlers still run. Async ones are cancelled."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._loop.stop()
        return not any(thread.is_alive() for thread in self._threads)

    def note_running(self) -> None:
        """Tell the supervisor since when the longest handler runs."""
        with self.lock:
            oldest = min((lane.started for lane in self._running), default=0.0)
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
        lane: Lane | None = None
        while (lane := self._next(lane)) is not None:
            if not self._drive(lane):
                lane = None  # it goes on in the event loop, which ends it

    def _next(self, ended: Lane | None) -> Lane | None:
        while True:
            with self.lock:
                if ended is not None:
                    self._end(ended)
                    ended = None
                if self._stopped:
                    return None
                if not (self._fresh or self._due) or len(self._running) >= self._concurrency:
                    self._idle += 1  # whoever notifies takes it off again
                    self.lock.wait()
                    continue
                if self._trusted():
                    return self._begin(self._pick())
            time.sleep(UNTRUSTED)

    def _pick(self) -> Lane:
        self._turn = (self._turn + 1) % 3
        if self._due and (self._turn == 0 or not self._fresh):
            return self._due.popleft()
        return self._fresh.popleft()

    def _begin(self, lane: Lane) -> Lane:
        if not self._running:
            self._slot[RUNNING_SINCE] = boottime()
        self._running.add(lane)
        lane.running = True
        lane.started = time.monotonic()
        lane.partition.running += 1
        return lane

    def _end(self, lane: Lane) -> None:
        partition = lane.partition
        self._running.discard(lane)
        lane.running, lane.current = False, None
        partition.running -= 1
        if not self._running:
            self._slot[RUNNING_SINCE] = 0.0
        if lane.queue and not partition.stopping:
            self.ready(lane)
            return
        lane.active = False
        if not lane.queue:
            partition.lanes.pop(lane.key, None)
        if lane.key in partition.chains:
            self.wake(partition, lane.key)
        if partition.stopping:
            self.touch(partition)

    def _notify(self) -> bool:
        if not self._idle:
            return False
        self._idle -= 1
        self.lock.notify()
        return True

    def _drive(self, lane: Lane) -> bool:
        """Call the handlers that the lane's walk asks for, in this thread; False if it goes on in the event loop."""
        walk = self._walk(lane)
        try:
            handler, event = next(walk)
            if handler.is_async:
                self._loop.start(self._drive_async(lane, walk, handler, event))
                return False
            while True:
                try:
                    result = handler.call(event)
                except BaseException as error:  # also SystemExit: a handler does not end the process
                    result = error
                handler, event = walk.send(result)
        except StopIteration:
            return True

    async def _drive_async(self, lane: Lane, walk: Walk, handler: Handler, event: DeliveredEvent) -> None:
        try:
            while True:
                handler, event = walk.send(await self._loop.call(handler.call, event, handler.timeout))
        except StopIteration:
            pass
        with self.lock:
            self._end(lane)
            self._notify()

    # One lane.

    def _walk(self, lane: Lane) -> Walk:
        """Yields (handler, event) for one event of the lane after the other, and is sent what the handler did.

        All handlers of one walk are of a kind: where a sync one follows an async one, the lane's turn ends.
        """
        partition, queue, find = lane.partition, lane.queue, self._routes.find
        life, done, is_async = partition.life, [], None
        turn_ends = lane.started + LANE_TURN
        while queue and not partition.stopping and self._trusted():
            try:
                event = queue.popleft()
            except IndexError:  # cleared meanwhile
                break
            row = event._row
            handler = find(row[3], row[4])
            if partition.remembered and self._remembered(partition, event):
                continue
            if handler is None:
                self._settle(lane, event, unroutable(self._on_unroutable, event.attempt - 1, _what(row)), life)
                continue
            if is_async is None:
                is_async = handler.is_async
            elif is_async is not handler.is_async:
                queue.appendleft(event)
                break
            lane.started = now = time.monotonic()
            lane.current = event
            if now > turn_ends:
                done = self._record(lane, done, life)
                turn_ends = now + LANE_TURN
            result = yield handler, event
            if result is None and event.parked is None:
                done.append(row[1:3])
            else:
                verdict = judge(handler, event.attempt - 1, result, self._error_limit)
                done = self._record(lane, done, life)
                self._settle(lane, event, verdict, life, result)
            if partition.life != life:
                done, life = self._record(lane, done, life), partition.life
        self._record(lane, done, life)

    def _trusted(self) -> bool:
        """May a handler start now? The wall clock jumps over every pause of the process or its machine."""
        now = time.time()
        if -TRUST_SPAN < now - self._trusted_at < TRUST_SPAN:
            return True
        if not self._slot.trusted():
            return False
        self._trusted_at = now
        return True

    def _record(self, lane: Lane, done: list[Pair], life: int) -> list[Pair]:
        if done:
            with self.lock:
                partition = lane.partition
                if partition.lost:
                    pass
                elif partition.life != life:
                    partition.remembered.update(done)
                else:
                    self._finish(lane, partition, done)
        return []

    def _finish(self, lane: Lane, partition: Partition, done: list[Pair]) -> None:
        if lane.unstuck is not None:  # parked while it ran, and done all the same
            unstuck, lane.unstuck = lane.unstuck, None
            if unstuck._row[1:3] in done:
                done.remove(unstuck._row[1:3])
                partition.done_parked(unstuck)
        if done:
            partition.finish(done)
        self.touch(partition)

    def _settle(
        self, lane: Lane, event: DeliveredEvent, verdict: Verdict | None, life: int, result: object = None
    ) -> None:
        """What a handler did with one event, where it is not simply done."""
        with self.lock:
            partition = lane.partition
            if partition.lost:
                return
            if partition.life != life:
                if verdict is None:
                    partition.remembered.add(event._row[1:3])
                return
            lane.unstuck = None
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
