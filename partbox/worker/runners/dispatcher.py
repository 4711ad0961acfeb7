"""The threads that run handlers: they ask the engine for lanes, walk them, and say which have ended.

A runner takes one lane at a time; one whose next handler is `async def` goes on in an event loop, a transactional one
in the thread of those, and its runner turns to the next. Threads are made when they are needed. One that has no lane
waits for a call, of which the engine makes one for each runner that is to look again (`engine.runs`).
Where all handlers are async, tasks of the event loop take lanes as runner threads do (`Walkers`).
"""

import asyncio
import threading
import time
from collections import deque
from functools import partial
from queue import Empty, SimpleQueue
from typing import NamedTuple

from partbox.platform import boottime
from partbox.worker.context import Context
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.ready_queue import Queue
from partbox.worker.engine.runs import Glance, Rest
from partbox.worker.fork_safety import leave
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.runners.batches import Batches
from partbox.worker.runners.endpoint import Endpoint, Kind
from partbox.worker.runners.event_loop import EventLoop, undisturbed
from partbox.worker.runners.lane_runner import LANE_TURN, LaneRunner, Walk
from partbox.worker.runners.settlement import Settlement
from partbox.worker.slot import RUNNING_SINCE, STUCK_SINCE

GLANCE = 0.0005  # seconds between two looks at lines that may have to be sorted
IN_TIME = 0.002  # seconds; who wants the interpreter from a thread that computes gets it after 5 ms
RECENT = 0.02  # seconds; what was seen before says nothing
PATIENCE = 50  # looks at nothing, after which nobody watches any more

UNTRUSTED = 0.02  # seconds between two looks at a lease that is over


class Walkers:
    """The walkers of one process, each of which has one lane at a time."""

    def __init__(
        self, context: Context, runner: LaneRunner, settlement: Settlement, loop: EventLoop, turn: float
    ) -> None:
        self._runs = context.engine.runs
        self._limits = context.limits
        self._runner = runner
        self._settlement = settlement
        self._loop = loop
        self._turn = turn
        self._signals = context.signals
        self._calls = SimpleQueue[None]()
        self._called = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def hire(self) -> None:
        """Let there be one more."""
        self._loop.start(self._walk)

    def call(self) -> None:
        """Have one look that waits; from any thread."""
        self._calls.put(None)
        if not self._called:
            self._called = True
            self._loop.soon(self._answer)

    def _answer(self) -> None:
        self._called = False
        while self._waiting and not self._calls.empty():
            waiting = self._waiting.popleft()
            if not waiting.done():  # by a handler that cancels whatever there is: then it waits anew
                self._calls.get_nowait()
                waiting.set_result(None)

    async def _walk(self) -> None:
        lanes: list[Lane] = []
        tally, task = self._settlement.reports.tally(), asyncio.current_task()
        try:
            while lanes := await self._next(lanes, tally):
                began = lanes[0].started
                if tally is not None:
                    tally.begin(began)
                ends, latest = self._loop.turn_of(began, self._turn)
                walk = self._runner.begin(ends, tally, Kind.ASYNC, latest=latest)
                for lane in lanes:
                    met = await self._runner.walk_async(lane, walk, task)
                    if met is not None:
                        if self._runner.has_turn(lane):
                            await self._runner.walk_async(lane, self._runner.turn(tally), task)
                        self._limits.place(lane)
                    if lane.started > walk.ends:  # the others wait for another turn
                        break
                if tally is not None and tally.end():
                    self._settlement.reports.delivered(tally)
                if not walk.waited and time.monotonic() > walk.ends:
                    self._runs.end(lanes)  # first: they are not to look as if they waited in a handler
                    lanes = []
                    await self._loop.give_way()
        except Exception as error:
            self._signals.failed(error)

    async def _next(self, ended: list[Lane], tally: Tally | None) -> list[Lane]:
        while isinstance(lanes := self._runner.next(ended, tally), Rest):
            ended = []
            if lanes is Rest.STOPPED:
                return []
            if lanes is Rest.UNTRUSTED:
                await undisturbed(asyncio.sleep(UNTRUSTED))
            else:
                await self._wait()
        return lanes

    async def _wait(self) -> None:
        """Wait for a call."""
        waiting = None
        while waiting is None or waiting.cancelled():
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await undisturbed(waiting)


class Drive(NamedTuple):
    """The parts that step deliveries: whose turn is next, what runs async handlers, the seconds that a turn may last.

    `lines`: new events may stand in line, all keys of a partition together.
    """

    queue: Queue
    loop: EventLoop
    turn: float = LANE_TURN
    lines: bool = False


class Dispatcher:
    """The runners of one process."""

    def __init__(self, context: Context, runner: LaneRunner, settlement: Settlement, drive: Drive) -> None:
        self._context, self._limits = context, context.limits
        self._engine = engine = context.engine
        self._runs = engine.runs
        self._runner = runner
        self._settlement = settlement
        self._batches = Batches(engine, runner, settlement)
        self._slot = context.slot
        self._signals = context.signals
        self._calls = SimpleQueue[None]()
        self._threads: list[threading.Thread] = []
        self._glance = Glance(0.0, in_time=False, lines={})  # the last one, of whichever runner has watched
        self._loop, self._turn = drive.loop, drive.turn
        self._stuck: tuple[float | None, float] = None, 0.0  # when a runner last moved, if all hang; and seen when
        engine.wakes.busy = self._note_busy

    @property
    def is_async(self) -> bool:
        """True if all that runs here runs in the event loop, and no runner thread is needed."""
        return {endpoint.kind for endpoint in self._runner.routes.all()} == {Kind.ASYNC}

    def start(self) -> None:
        """Let there be runners: before this lanes that are ready wait."""
        wakes = self._engine.wakes
        if any(endpoint.handler.is_async for endpoint in self._runner.routes.all()):
            self._loop.prepare()
        if self.is_async:
            self._walkers = Walkers(self._context, self._runner, self._settlement, self._loop, self._turn)
            wakes.run, wakes.hire = self._walkers.call, self._walkers.hire
        else:
            wakes.run, wakes.hire, self._runs.watches = partial(self._calls.put, None), self._hire, True

    def join(self, until: float) -> bool:
        """Wait for the runners until then (monotonic seconds), cancel async handlers; False if some still run.

        The loop goes on until `close`.
        """
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        cancelled = self._loop.cancel(max(0.0, until - time.monotonic()))
        return not cancelled and not any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Close what handlers have open, and end the loop."""
        handlers = (endpoint.handler for endpoint in self._runner.routes.all())
        self._loop.stop({handler.close for handler in handlers if handler.close is not None})

    def disown(self) -> None:
        """In a forked process: walk nothing on."""
        self._runs.disown()
        self._loop.disown()

    def note_running(self) -> list[Lane]:
        """The lanes whose handlers run now; the supervisor is told since when the longest does, or all runners hang."""
        running = self._runs.running()
        oldest = min((lane.started for lane in running), default=0.0)
        now = boottime()
        self._slot[RUNNING_SINCE] = now - (time.monotonic() - oldest) if oldest else 0.0
        # Counted from here on, anew whenever a runner has moved: the last one may just come back from a long handler.
        if (moved := self._runs.stuck_since()) != self._stuck[0]:
            self._stuck = moved, now
        self._slot[STUCK_SINCE] = 0.0 if moved is None else self._stuck[1]
        return running

    def turn(self, lanes: list[Lane]) -> list[Lane]:
        """A turn over these lanes, which run, in the caller's thread; those that are to be ended."""
        return self._take_turn(lanes, self._settlement.reports.tally())

    def _take_turn(self, lanes: list[Lane], tally: Tally | None) -> list[Lane]:
        began = lanes[0].started
        if tally is not None:
            tally.begin(began)
        ended = self._walk_all(lanes, self._runner.begin(began + self._turn, tally))
        if self._engine.forked:
            leave(None)
        if tally is not None and tally.end():
            self._settlement.reports.delivered(tally)
        return ended

    def _walk_all(self, lanes: list[Lane], walk: Walk) -> list[Lane]:
        """Walk them until the turn ends, which the last start of a handler tells; those that are to be ended."""
        ended: list[Lane] = []
        for at, lane in enumerate(lanes, start=1):
            if (met := self._runner.walk(lane, walk)) is None:
                ended.append(lane)
            else:
                ended += self._go_on(lane, met[0], walk.tally)
            if lane.started > walk.ends:
                return ended + lanes[at:]  # these wait for another turn
        return ended

    def _note_busy(self, busy: bool) -> None:
        self._slot[RUNNING_SINCE] = boottime() if busy else 0.0

    def _hire(self) -> None:
        thread = threading.Thread(target=self._run, name=f"partbox-handler-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        lanes: list[Lane] = []
        tally = self._settlement.reports.tally()
        try:
            while lanes := self._next(lanes, tally):
                lanes = self._take_turn(lanes, tally)
        except BaseException as error:
            self._signals.failed(error)

    def _next(self, ended: list[Lane], tally: Tally | None) -> list[Lane]:
        """End these lanes and wait for the next to run; none when it is time to go."""
        while isinstance(lanes := self._runner.next(ended, tally), Rest):
            ended = []
            if lanes is Rest.STOPPED:
                return []
            if lanes is Rest.UNTRUSTED:
                time.sleep(UNTRUSTED)
            elif lanes is not Rest.WATCH or not self._watch():
                self._calls.get()
        return lanes

    def _watch(self) -> bool:
        """Watch the lines that run, until somebody calls this runner, which is true then, or none holds up others for
        a while. Who wakes in time has got the interpreter at once."""
        quiet = 0
        while quiet < PATIENCE or not self._runs.look_away(called=False):
            began, before = time.monotonic(), self._glance
            if began - before.at > RECENT:
                before = Glance(began, in_time=False, lines={})
            try:  # one who is called again and again would never look else
                self._calls.get(timeout=max(GLANCE / 10, before.at + GLANCE - began))
            except Empty:
                now = time.monotonic()
                self._glance = glance = self._runs.relieve(before, now, in_time=now - began < IN_TIME)
                quiet = 0 if glance.lines else quiet + 1
            else:
                return self._runs.look_away(called=True)
        return False

    def _go_on(self, lane: Lane, endpoint: Endpoint, tally: Tally | None) -> list[Lane]:
        """Its next event is not for a runner alone; the lanes to be ended, but for what the event loop will end."""
        if tally is not None:
            self._settlement.reports.delivered(tally)  # what follows takes its own time
        turn, others = endpoint.walked_as is Kind.LIMITED, list[Lane]()
        if endpoint.kind is Kind.TRANSACTIONAL:
            self._runs.leave_to_transactor(lane)
        elif turn and not self._runner.has_turn(lane):
            pass  # it waits for one
        elif endpoint.kind is Kind.LISTS and not endpoint.handler.is_async:
            others = self._batches.run(lane, endpoint)
            if tally is not None:
                tally.begin(time.monotonic())
        elif turn and endpoint.kind is Kind.SYNC:
            self._runner.walk(lane, self._runner.turn(tally))
        else:
            self._loop.start(lambda: self._walk_async(lane, endpoint))
            return []
        if turn:
            self._limits.place(lane)  # before it ends: where it waits is known then
        return [lane, *others]

    async def _walk_async(self, lane: Lane, endpoint: Endpoint) -> None:
        """Walk it in the event loop, and end it; not when the loop is told to end: what was cancelled is not done, and
        a partition with a lane that has not ended is not released."""
        others: list[Lane] = []
        try:
            await self._loop.turn()
            if endpoint.kind is Kind.LISTS:
                others = await self._batches.run_async(lane, endpoint)
            else:
                tally = self._settlement.reports.tally()
                began = time.monotonic()
                if tally is not None:
                    tally.begin(began)
                ends, latest = self._loop.turn_of(began, self._turn)
                walk = self._runner.begin(ends, tally, Kind.ASYNC, latest=latest)
                if endpoint.walked_as is Kind.LIMITED:
                    walk = self._runner.turn(tally)
                await self._runner.walk_async(lane, walk, asyncio.current_task())
                if tally is not None:
                    self._settlement.reports.delivered(tally)
            if endpoint.walked_as is Kind.LIMITED:
                self._limits.place(lane)
        except Exception as error:
            self._signals.failed(error)
        self._runs.end([lane, *others])
