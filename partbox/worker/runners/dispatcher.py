"""Gives lanes that have something to do to runners.

A runner thread takes one lane at a time (`ready_lanes`); one whose next handler is `async def` goes on in an event
loop, a transactional one in the thread of those, and its runner turns to the next. `concurrency` bounds
the handlers in progress, lists count as one; threads are made when they are needed.
"""

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from partbox.events.record import ROUTE
from partbox.platform import boottime
from partbox.worker.context import Context
from partbox.worker.engine.partition import DeadLetterLane, Lane, Partition, SharedLane
from partbox.worker.engine.ready_queue import ReadyQueue
from partbox.worker.forks import leave
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.runners import dead_letters
from partbox.worker.runners.batches import Batches
from partbox.worker.runners.endpoint import Endpoint, Kind
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.lane_runner import LaneRunner, Walk
from partbox.worker.runners.settlement import Settlement
from partbox.worker.runners.two_loops import watch
from partbox.worker.slot import RUNNING_SINCE

BUNDLE = 64  # lanes that a lone runner takes at a time
UNTRUSTED = 0.02  # seconds between two looks at a lease that is over
STUCK = 1.0  # a handler that runs longer does not hold up its partition any more


class Dispatcher:
    """The runners of one process, and the lanes that wait for them."""

    def __init__(self, context: Context, runner: LaneRunner, settlement: Settlement) -> None:
        self._engine = engine = context.engine
        self._lock = engine.lock
        self._runner = runner
        self._settlement = settlement
        self._batches = Batches(engine, runner, settlement, self._more)
        self._dead_letter = context.dead_letter
        self._slot = context.slot
        self._concurrency = concurrency = context.concurrency
        self._signals = context.signals
        self._work = threading.Condition(self._lock)
        shared = concurrency > 1 or any(endpoint.kind is Kind.LISTS for endpoint in runner.routes.all())
        self._ready = ReadyQueue(1 if shared else BUNDLE)
        self._running: set[Lane] = set()
        self._joined: set[Lane] = set()  # those of them that run in the list of another
        self._serial: set[Lane] = set()  # those of them whose next event is transactional
        self._idle = 0
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._loop = EventLoop()
        if any(endpoint.handler.is_async for endpoint in runner.routes.all()):
            watch()
        engine.runners.ready, engine.runners.unstick = self.ready, self.unstick
        engine.runners.begin, engine.runners.end_serial = lambda lane, now: self.begin(lane), self.end_serial
        engine.runners.lone = concurrency == 1 and all(each.kind is Kind.SYNC for each in runner.routes.all())

    def ready(self, lanes: Sequence[Lane], *, due: bool = False) -> None:
        """These lanes have something to do; runners take them when they are free. Lock held."""
        for lane in lanes:
            lane.active = True
        self._ready.add(lanes, due=due)
        self._summon(min(len(lanes), self._concurrency))

    def unstick(self, partitions: Collection[Partition], now: float) -> None:
        """Let long-running handlers not hold up these partitions any more, whose windows are full. Lock held."""
        late = now - STUCK
        for lane in [lane for lane in self._running if lane.started < late and lane.partition in partitions]:
            self._engine.outcomes.unstick(lane)

    def stop(self) -> None:
        """Start no handler any more; runners end when theirs do."""
        with self._lock:  # a runner sees the stop, or is waiting when it is notified
            self._stopped = True
            self._work.notify_all()

    def join(self, until: float) -> bool:
        """Wait for the runners until then (monotonic seconds), cancel async handlers; False if some still run."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        handlers = (endpoint.handler for endpoint in self._runner.routes.all())
        cancelled = self._loop.stop({handler.close for handler in handlers if handler.close is not None})
        return not cancelled and not any(thread.is_alive() for thread in self._threads)

    def disown(self) -> None:
        """In a forked process: walk nothing on."""
        self._lock._at_fork_reinit()  # type: ignore[attr-defined]  # a thread may hold it which this process has not
        with self._lock:  # nobody else goes on here: for what wants it held
            self._engine.forked = self._stopped = True
            for partition in {*self._engine.partitions.values(), *(lane.partition for lane in self._running)}:
                partition.lose()
        self._loop.disown()

    def note_running(self) -> list[Lane]:
        """The lanes whose handlers run now; the supervisor is told since when the longest does."""
        running = self.running()
        oldest = min((lane.started for lane in running), default=0.0)
        self._slot[RUNNING_SINCE] = boottime() - (time.monotonic() - oldest) if oldest else 0.0
        return running

    def running(self) -> list[Lane]:
        """The lanes whose handlers run now."""
        with self._lock:  # lanes begin and end meanwhile
            return [lane for lane in self._running if lane.current is not None]

    def handling(self) -> list[Lane]:
        """The same, but for the others of a list: one for each handler that runs now."""
        with self._lock:  # as in `running`
            return [lane for lane in self._running if lane.current is not None and lane not in self._joined]

    def begin(self, lane: Lane) -> None:
        """The lane runs, but not by a runner: its events are transactional. Lock held."""
        self._begin([lane])

    def end_serial(self, lane: Lane) -> None:
        """The lane does not run any more; if it has more events it goes on with the transactor. Lock held."""
        self._serial.add(lane)
        self._end([lane])
        self._notify()

    def _summon(self, runners: int) -> None:
        for _ in range(runners):
            if self._notify():
                continue
            if len(self._threads) == self._concurrency:
                return
            thread = threading.Thread(target=self._run, name=f"partbox-handler-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _notify(self) -> bool:
        if not self._idle:
            return False
        self._idle -= 1
        self._work.notify()
        return True

    # Runners.

    def _run(self) -> None:
        lanes: list[Lane] = []
        tally = self._settlement.reports.tally()
        try:
            while lanes := self._next(lanes, tally):
                walk = self._new_walk(lanes[0].started, tally)
                lanes = self._walk_all(lanes, walk)
                if self._engine.forked:
                    leave(None)
                if tally is not None and tally.end():
                    self._settlement.reports.delivered(tally)
        except BaseException as error:
            self._signals.failed(error)

    def _walk_all(self, lanes: list[Lane], walk: Walk) -> list[Lane]:
        """Walk them until the turn ends, which the last start of a handler tells; those that are to be ended."""
        ended: list[Lane] = []
        for at, lane in enumerate(lanes, start=1):
            if isinstance(lane, DeadLetterLane):
                dead_letters.walk(lane, self._engine, self._dead_letter)
                ended.append(lane)
            elif (endpoint := self._runner.walk(lane, walk)) is None or self._go_on(lane, endpoint, walk.tally):
                ended.append(lane)
            if lane.started > walk.ends:
                return ended + lanes[at:]  # these wait for another turn
        return ended

    def _new_walk(self, began: float, tally: Tally | None) -> Walk:
        return self._runner.begin(began, tally)

    def _go_on(self, lane: Lane, endpoint: Endpoint, tally: Tally | None) -> bool:
        """Its next event is not for a runner alone; False if the event loop will end the lane."""
        if tally is not None:
            self._settlement.reports.delivered(tally)  # what follows takes its own time
        if endpoint.kind is Kind.TRANSACTIONAL:
            with self._lock:  # read when the lane ends
                self._serial.add(lane)
        elif endpoint.kind is Kind.LISTS and not endpoint.handler.is_async:
            self._end_all(self._batches.run(lane, endpoint))
            if tally is not None:
                tally.begin(time.monotonic())
        else:
            self._loop.start(lambda: self._walk_async(lane, endpoint))
            return False
        return True

    async def _walk_async(self, lane: Lane, endpoint: Endpoint) -> None:
        """Walk it in the event loop, and end it; not when the loop is told to end: what was cancelled is not done, and
        a partition with a lane that has not ended is not released."""
        others: list[Lane] = []
        try:
            if endpoint.kind is Kind.LISTS:
                others = await self._batches.run_async(lane, endpoint)
            else:
                walk = self._new_walk(time.monotonic(), self._settlement.reports.tally())
                await self._runner.walk_async(lane, walk)
        except Exception as error:
            self._signals.failed(error)
        self._end_all([lane, *others])

    def _end_all(self, lanes: Sequence[Lane]) -> None:
        """They ran as one handler, whose place is free for another."""
        with self._lock:  # the lanes end and their place is free as one
            self._end(lanes)
            self._notify()

    def _more(self, endpoint: Endpoint, most: int) -> list[Lane]:
        """Lanes that wait with an event for this endpoint; they run from now on."""
        with self._lock:  # a lane is found and begun as one: no runner takes it too
            found = self._ready.take_those(partial(self._waits_for, endpoint), most)
            self._joined.update(found)
            return self._begin(found)

    def _waits_for(self, endpoint: Endpoint, lane: Lane) -> bool:
        if isinstance(lane, DeadLetterLane) or lane.partition.stopping or not lane.queue:
            return False
        routes = self._runner.routes
        return routes.only is endpoint or routes[lane.queue[0].record[ROUTE]] is endpoint

    def _next(self, ended: list[Lane], tally: Tally | None) -> list[Lane]:
        """End these lanes and wait for the next to run; none when it is time to go. Tells before it waits."""
        while True:
            with self._lock:  # ends, looks and begins as one, or waits: no notification is missed
                self._end(ended)
                ended = []
                owed = tally if tally is not None and tally.oldest is not None else None
                if self._stopped and owed is None:
                    return []
                if not self._ready or len(self._running) - len(self._joined) >= self._concurrency:
                    if owed is None:
                        self._idle += 1  # whoever notifies takes it off again
                        self._work.wait()
                        continue
                elif not self._stopped and self._runner.trusted():
                    return self._begin(self._ready.take())
            if owed is not None:
                self._settlement.reports.delivered(owed)
            else:
                time.sleep(UNTRUSTED)

    def _begin(self, lanes: list[Lane]) -> list[Lane]:
        if not self._running:
            self._slot[RUNNING_SINCE] = boottime()
        now = time.monotonic()
        for lane in lanes:
            partition = lane.partition
            lane.running, lane.started, lane.incarnation = True, now, partition.incarnation
            partition.running += 1
        self._running.update(lanes)
        return lanes

    def _end(self, lanes: Sequence[Lane]) -> None:
        self._engine.outcomes.record(lanes)
        again = [each for lane in lanes for each in self._leave(lane)]
        if again:
            self.ready(again)

    def _leave(self, lane: Lane) -> Iterable[Lane]:
        """The lanes that go on: itself, or those that it was sorted into; a transactional one goes on elsewhere."""
        partition = lane.partition
        self._running.discard(lane)
        self._engine.outcomes.forget(lane)
        if self._joined:
            self._joined.discard(lane)
        if not self._running:
            self._slot[RUNNING_SINCE] = 0.0
        lane.running, lane.current = False, None
        partition.running -= 1
        serial = bool(self._serial) and lane in self._serial
        if serial:
            self._serial.discard(lane)
        if lane.queue and not partition.stopping:
            if not serial:
                return (lane,)
            self._engine.runners.transact(lane)
            return ()
        lane.active = False
        if not lane.queue:
            partition.close(lane)
        if chains := partition.parked.chains:
            for key in list(chains) if isinstance(lane, SharedLane) else [lane.key]:
                self._engine.wake(partition, key)
        if partition.stopping:
            self._engine.touch(partition)
        elif isinstance(lane, SharedLane):
            return partition.sorted_out()
        return ()
