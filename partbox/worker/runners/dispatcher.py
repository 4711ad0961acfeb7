"""The threads that run handlers: they ask the engine for lanes, walk them, and say which have ended.

A runner takes one lane at a time; one whose next handler is `async def` goes on in an event loop, a transactional one
in the thread of those, and its runner turns to the next. Threads are made when they are needed. One that has no lane
waits for a call, of which the engine makes one for each runner that is to look again (`engine.scheduler`).
Where all handlers are async, tasks of the event loop take lanes as runner threads do (`AsyncRunners`).
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
from partbox.worker.engine.ready_queue import RunQueue
from partbox.worker.engine.scheduler import NoLane, WatchedLanes
from partbox.worker.fork_safety import exit_forked
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.runners.batches import BatchRunner
from partbox.worker.runners.endpoint import Endpoint, RunKind
from partbox.worker.runners.event_loop import EventLoop, await_undisturbed
from partbox.worker.runners.lane_runner import LANE_SLICE, LaneRun, LaneRunner
from partbox.worker.runners.settlement import Settlement
from partbox.worker.slot import HUNG_SINCE, RUNNING_SINCE

WATCH_INTERVAL = 0.0005  # seconds between two looks at lines that may have to be sorted
IN_TIME = 0.002  # seconds; who wants the interpreter from a thread that computes gets it after 5 ms
RECENT = 0.02  # seconds; what was seen before says nothing
MAX_IDLE_CHECKS = 50  # looks at nothing, after which nobody watches any more

UNTRUSTED = 0.02  # seconds between two looks at a lease that is over


class AsyncRunners:
    """The walkers of one process, each of which has one lane at a time."""

    def __init__(
        self, context: Context, runner: LaneRunner, settlement: Settlement, loop: EventLoop, slice_seconds: float
    ) -> None:
        self._scheduler = context.engine.scheduler
        self._limits = context.limits
        self._runner = runner
        self._settlement = settlement
        self._loop = loop
        self._slice_seconds = slice_seconds
        self._signals = context.signals
        self._wakeups = SimpleQueue[None]()
        self._wake_scheduled = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def add_runner(self) -> None:
        """Let there be one more."""
        self._loop.start(self._run_until_stopped)

    def wake_one(self) -> None:
        """Have one look that waits; from any thread."""
        self._wakeups.put(None)
        if not self._wake_scheduled:
            self._wake_scheduled = True
            self._loop.call_soon(self._wake_waiting)

    def _wake_waiting(self) -> None:
        self._wake_scheduled = False
        while self._waiting and not self._wakeups.empty():
            waiting = self._waiting.popleft()
            if not waiting.done():  # by a handler that cancels whatever there is: then it waits anew
                self._wakeups.get_nowait()
                waiting.set_result(None)

    async def _run_until_stopped(self) -> None:
        lanes: list[Lane] = []
        tally, task = self._settlement.reports.tally(), asyncio.current_task()
        try:
            while lanes := await self._next_lanes(lanes, tally):
                began = lanes[0].started
                if tally is not None:
                    tally.begin_slice(began)
                ends, latest_end = self._loop.slice_bounds(began, self._slice_seconds)
                run = self._runner.begin_run(ends, tally, RunKind.ASYNC, latest_end=latest_end)
                for lane in lanes:
                    handoff = await self._runner.run_async(lane, run, task)
                    if handoff is not None:
                        if self._runner.has_permit(lane):
                            await self._runner.run_async(lane, self._runner.begin_single_run(tally), task)
                        self._limits.set_limit_keys(lane)
                    if lane.started > run.ends:  # the others wait for another turn
                        break
                if tally is not None and tally.end_slice():
                    self._settlement.reports.report_delivered(tally)
                if not run.has_waited and time.monotonic() > run.ends:
                    self._scheduler.end(lanes)  # first: they are not to look as if they waited in a handler
                    lanes = []
                    await self._loop.yield_to_others()
        except Exception as error:
            self._signals.report_failure(error)

    async def _next_lanes(self, ended: list[Lane], tally: Tally | None) -> list[Lane]:
        while isinstance(lanes := self._runner.next(ended, tally), NoLane):
            ended = []
            if lanes is NoLane.STOPPED:
                return []
            if lanes is NoLane.UNTRUSTED:
                await await_undisturbed(asyncio.sleep(UNTRUSTED))
            else:
                await self._wait_for_wakeup()
        return lanes

    async def _wait_for_wakeup(self) -> None:
        """Wait for a call."""
        waiting = None
        while waiting is None or waiting.cancelled():
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await await_undisturbed(waiting)


class RunnerSetup(NamedTuple):
    """The parts that step deliveries: whose turn is next, what runs async handlers, the seconds that a turn may last.

    `shared_lanes`: new events may stand in line, all keys of a partition together.
    """

    queue: RunQueue
    loop: EventLoop
    slice_seconds: float = LANE_SLICE
    shared_lanes: bool = False


class Dispatcher:
    """The runners of one process."""

    def __init__(self, context: Context, runner: LaneRunner, settlement: Settlement, runner_setup: RunnerSetup) -> None:
        self._context, self._limits = context, context.limits
        self._engine = engine = context.engine
        self._scheduler = engine.scheduler
        self._runner = runner
        self._settlement = settlement
        self._batch_runner = BatchRunner(engine, runner, settlement)
        self._slot = context.slot
        self._signals = context.signals
        self._wakeups = SimpleQueue[None]()
        self._threads: list[threading.Thread] = []
        self._last_check = WatchedLanes(
            0.0, in_time=False, shared_lanes={}
        )  # the last one, of whichever runner has watched
        self._loop, self._slice_seconds = runner_setup.loop, runner_setup.slice_seconds
        self._all_hang_since: tuple[float | None, float] = (
            None,
            0.0,
        )  # when a runner last moved, if all hang; and seen when
        engine.wakes.busy = self._note_busy

    @property
    def is_async(self) -> bool:
        """True if all that runs here runs in the event loop, and no runner thread is needed."""
        return {endpoint.kind for endpoint in self._runner.routes.all()} == {RunKind.ASYNC}

    def start(self) -> None:
        """Let there be runners: before this lanes that are ready wait."""
        wakes = self._engine.wakes
        if any(endpoint.handler.is_async for endpoint in self._runner.routes.all()):
            self._loop.prepare()
        if self.is_async:
            self._async_runners = AsyncRunners(
                self._context, self._runner, self._settlement, self._loop, self._slice_seconds
            )
            wakes.run, wakes.hire = self._async_runners.wake_one, self._async_runners.add_runner
        else:
            wakes.run, wakes.hire, self._scheduler.can_watch = partial(self._wakeups.put, None), self._hire, True

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
        self._scheduler.disown()
        self._loop.disown()

    def note_running(self) -> list[Lane]:
        """The lanes whose handlers run now; the supervisor is told since when the longest does, or all runners hang."""
        running = self._scheduler.running()
        oldest = min((lane.started for lane in running), default=0.0)
        now = boottime()
        self._slot[RUNNING_SINCE] = now - (time.monotonic() - oldest) if oldest else 0.0
        # Counted from here on, anew whenever a runner has moved: the last one may just come back from a long handler.
        if (moved := self._scheduler.hung_since()) != self._all_hang_since[0]:
            self._all_hang_since = moved, now
        self._slot[HUNG_SINCE] = 0.0 if moved is None else self._all_hang_since[1]
        return running

    def run_time_slice(self, lanes: list[Lane]) -> list[Lane]:
        """A turn over these lanes, which run, in the caller's thread; those that are to be ended."""
        return self._run_slice(lanes, self._settlement.reports.tally())

    def _run_slice(self, lanes: list[Lane], tally: Tally | None) -> list[Lane]:
        began = lanes[0].started
        if tally is not None:
            tally.begin_slice(began)
        ended = self._run_lanes(lanes, self._runner.begin_run(began + self._slice_seconds, tally))
        if self._engine.is_forked:
            exit_forked(None)
        if tally is not None and tally.end_slice():
            self._settlement.reports.report_delivered(tally)
        return ended

    def _run_lanes(self, lanes: list[Lane], run: LaneRun) -> list[Lane]:
        """Walk them until the turn ends, which the last start of a handler tells; those that are to be ended."""
        ended: list[Lane] = []
        for at, lane in enumerate(lanes, start=1):
            if (handoff := self._runner.run(lane, run)) is None:
                ended.append(lane)
            else:
                ended += self._hand_over(lane, handoff[0], run.tally)
            if lane.started > run.ends:
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
            while lanes := self._next_lanes(lanes, tally):
                lanes = self._run_slice(lanes, tally)
        except BaseException as error:
            self._signals.report_failure(error)

    def _next_lanes(self, ended: list[Lane], tally: Tally | None) -> list[Lane]:
        """End these lanes and wait for the next to run; none when it is time to go."""
        while isinstance(lanes := self._runner.next(ended, tally), NoLane):
            ended = []
            if lanes is NoLane.STOPPED:
                return []
            if lanes is NoLane.UNTRUSTED:
                time.sleep(UNTRUSTED)
            elif lanes is not NoLane.WATCH or not self._watch_shared_lanes():
                self._wakeups.get()
        return lanes

    def _watch_shared_lanes(self) -> bool:
        """Watch the lines that run, until somebody calls this runner, which is true then, or none holds up others for
        a while. Who wakes in time has got the interpreter at once."""
        idle_checks = 0
        while idle_checks < MAX_IDLE_CHECKS or not self._scheduler.stop_watching(called=False):
            began, before = time.monotonic(), self._last_check
            if began - before.at > RECENT:
                before = WatchedLanes(began, in_time=False, shared_lanes={})
            try:  # one who is called again and again would never look else
                self._wakeups.get(timeout=max(WATCH_INTERVAL / 10, before.at + WATCH_INTERVAL - began))
            except Empty:
                now = time.monotonic()
                self._last_check = check = self._scheduler.split_blocking_lanes(
                    before, now, in_time=now - began < IN_TIME
                )
                idle_checks = 0 if check.shared_lanes else idle_checks + 1
            else:
                return self._scheduler.stop_watching(called=True)
        return False

    def _hand_over(self, lane: Lane, endpoint: Endpoint, tally: Tally | None) -> list[Lane]:
        """Its next event is not for a runner alone; the lanes to be ended, but for what the event loop will end."""
        if tally is not None:
            self._settlement.reports.report_delivered(tally)  # what follows takes its own time
        is_limited, others = endpoint.run_kind is RunKind.LIMITED, list[Lane]()
        if endpoint.kind is RunKind.TRANSACTIONAL:
            self._scheduler.hand_to_transactor(lane)
        elif is_limited and not self._runner.has_permit(lane):
            pass  # it waits for one
        elif endpoint.kind is RunKind.BATCH and not endpoint.handler.is_async:
            others = self._batch_runner.run(lane, endpoint)
            if tally is not None:
                tally.begin_slice(time.monotonic())
        elif is_limited and endpoint.kind is RunKind.SYNC:
            self._runner.run(lane, self._runner.begin_single_run(tally))
        else:
            self._loop.start(lambda: self._run_lane_async(lane, endpoint))
            return []
        if is_limited:
            self._limits.set_limit_keys(lane)  # before it ends: where it waits is known then
        return [lane, *others]

    async def _run_lane_async(self, lane: Lane, endpoint: Endpoint) -> None:
        """Walk it in the event loop, and end it; not when the loop is told to end: what was cancelled is not done, and
        a partition with a lane that has not ended is not released."""
        others: list[Lane] = []
        try:
            await self._loop.wait_for_slice()
            if endpoint.kind is RunKind.BATCH:
                others = await self._batch_runner.run_async(lane, endpoint)
            else:
                tally = self._settlement.reports.tally()
                began = time.monotonic()
                if tally is not None:
                    tally.begin_slice(began)
                ends, latest_end = self._loop.slice_bounds(began, self._slice_seconds)
                run = self._runner.begin_run(ends, tally, RunKind.ASYNC, latest_end=latest_end)
                if endpoint.run_kind is RunKind.LIMITED:
                    run = self._runner.begin_single_run(tally)
                await self._runner.run_async(lane, run, asyncio.current_task())
                if tally is not None:
                    self._settlement.reports.report_delivered(tally)
            if endpoint.run_kind is RunKind.LIMITED:
                self._limits.set_limit_keys(lane)
        except Exception as error:
            self._signals.report_failure(error)
        self._scheduler.end([lane, *others])
