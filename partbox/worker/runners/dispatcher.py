"""Run the handlers of ready lanes, in threads or in an event loop.

A runner takes lanes from the engine, runs their events in turn and reports which lanes have ended. A runner without a
lane waits for a wakeup; the engine sends one for each runner that must look again (`engine.scheduler`)."""

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

WATCH_INTERVAL = 0.0005  # seconds between two checks of shared lanes that may have to be split
IN_TIME = 0.002  # seconds; a thread that waits for the interpreter gets it after 5 ms
RECENT = 0.02  # seconds; an older check says nothing
MAX_IDLE_CHECKS = 50  # checks that find nothing before watching stops

UNTRUSTED = 0.02  # seconds between two checks of a lease that has run out


class AsyncRunners:
    """The asyncio tasks that run events, in place of threads, if all handlers are async."""

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
        self._is_wake_scheduled = False
        self._idle_futures: deque[asyncio.Future[None]] = deque()

    def add_runner(self) -> None:
        """Start one more asyncio task that runs events. Any thread may call this."""
        self._loop.start_runner(self._run_until_stopped)

    def wake_one(self) -> None:
        """Wake one of the asyncio tasks that wait for events to run. Any thread may call this."""
        self._wakeups.put(None)
        if not self._is_wake_scheduled:
            self._is_wake_scheduled = True
            self._loop.call_soon(self._wake_waiting)

    def _wake_waiting(self) -> None:
        self._is_wake_scheduled = False
        while self._idle_futures and not self._wakeups.empty():
            waiting = self._idle_futures.popleft()
            # A handler that cancels all futures may have cancelled this one; its runner then waits anew.
            if not waiting.done():
                self._wakeups.get_nowait()
                waiting.set_result(None)

    async def _run_until_stopped(self) -> None:
        lanes: list[Lane] = []
        tally, task = self._settlement.reports.build_tally(), asyncio.current_task()
        try:
            while lanes := await self._wait_for_lanes(lanes, tally):
                began = lanes[0].started_at
                if tally is not None:
                    tally.begin_slice(began)
                ends, latest_end = self._loop.compute_slice_bounds(began, self._slice_seconds)
                run = self._runner.begin_run(ends, tally, RunKind.ASYNC, latest_end=latest_end)
                for lane in lanes:
                    handoff = await self._runner.run_async(lane, run, task)
                    if handoff is not None:
                        if self._runner.has_permit(lane):
                            await self._runner.run_async(lane, self._runner.begin_single_run(tally), task)
                        self._limits.set_limit_keys(lane)
                    # The other lanes wait for another slice.
                    if lane.started_at > run.ends_at:
                        break
                if tally is not None and tally.end_slice():
                    self._settlement.reports.report_delivered(tally)
                # No handler has waited, so other tasks of the loop have not run. End the lanes before the pause, so
                # that they do not look like lanes that wait in a handler.
                if not run.has_waited and time.monotonic() > run.ends_at:
                    self._scheduler.end_lanes(lanes)
                    lanes = []
                    await self._loop.yield_to_others()
        except Exception as error:
            self._signals.report_failure(error)

    async def _wait_for_lanes(self, ended: list[Lane], tally: Tally | None) -> list[Lane]:
        while isinstance(lanes := self._runner.take_next_lanes(ended, tally), NoLane):
            ended = []
            if lanes is NoLane.STOPPED:
                return []
            if lanes is NoLane.UNTRUSTED:
                await await_undisturbed(asyncio.sleep(UNTRUSTED))
            else:
                await self._wait_for_wakeup()
        return lanes

    async def _wait_for_wakeup(self) -> None:
        waiting = None
        # A handler may cancel any future of the loop.
        while waiting is None or waiting.cancelled():
            waiting = asyncio.get_running_loop().create_future()
            self._idle_futures.append(waiting)
            await await_undisturbed(waiting)


class RunnerSetup(NamedTuple):
    """The objects and settings that all threads and tasks of a worker share for running events."""

    # `queue` chooses the next lane (the queue of events of one key), `loop` is the event loop, and `slice_seconds` is
    # the length of a time slice. `shared_lanes` allows new events of all keys of a partition to wait in one shared
    # lane.

    queue: RunQueue
    loop: EventLoop
    slice_seconds: float = LANE_SLICE
    shared_lanes: bool = False


class Dispatcher:
    """The pool of threads, or of asyncio tasks, that runs the handlers of one worker process."""

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
        # The last check by any of the runners that watch.
        self._last_check = WatchedLanes(0.0, woke_in_time=False, shared_lanes={})
        self._loop, self._slice_seconds = runner_setup.loop, runner_setup.slice_seconds
        # When a runner last moved, if all runners hang (monotonic seconds), and when that was noticed (boottime
        # seconds).
        self._all_hang_since: tuple[float | None, float] = (
            None,
            0.0,
        )
        engine.wakes.report_busy = self._note_busy

    @property
    def is_async(self) -> bool:
        """True if the worker needs no threads for handlers, because every handler is async."""
        # A handler that takes lists of events needs a thread too.
        return {endpoint.kind for endpoint in self._runner.routes.list_all()} == {RunKind.ASYNC}

    def start(self) -> None:
        """Connect the engine to the pool, so that it can start and wake threads or tasks."""
        # Call this before any lane (the events of one key) is ready.
        wakes = self._engine.wakes
        if any(endpoint.handler.is_async for endpoint in self._runner.routes.list_all()):
            self._loop.guard_pools()
        if self.is_async:
            self._async_runners = AsyncRunners(
                self._context, self._runner, self._settlement, self._loop, self._slice_seconds
            )
            wakes.wake_runner, wakes.hire_runner = self._async_runners.wake_one, self._async_runners.add_runner
        else:
            wakes.wake_runner, wakes.hire_runner, self._scheduler.can_watch = (
                partial(self._wakeups.put, None),
                self._hire,
                True,
            )

    def join(self, until: float) -> bool:
        """Wait until `until` for handlers to end, then cancel the async handlers. Return False if some still run."""
        # `until` is in monotonic seconds. The event loop goes on until `close` is called.
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        cancelled = self._loop.cancel_handlers(max(0.0, until - time.monotonic()))
        return not cancelled and not any(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Close the clients that handlers hold open, and stop the event loop."""
        # A handler's clients are closed by its `close`.
        handlers = (endpoint.handler for endpoint in self._runner.routes.list_all())
        self._loop.stop({handler.close for handler in handlers if handler.close is not None})

    def disown(self) -> None:
        """Stop the scheduler and the event loop in a forked child process."""
        # The work of the parent process must not go on there.
        self._scheduler.disown()
        self._loop.disown()

    def note_running(self) -> list[Lane]:
        """Return the event queues whose handlers run now, and tell the supervisor since when handlers run or hang."""
        # A lane is the queue of events of one key.
        # The process's slot gets the time since when the oldest handler runs, and since when all runners hang.
        running = self._scheduler.list_running()
        oldest = min((lane.started_at for lane in running), default=0.0)
        now = boottime()
        self._slot[RUNNING_SINCE] = now - (time.monotonic() - oldest) if oldest else 0.0
        if (moved := self._scheduler.find_hang_start()) != self._all_hang_since[0]:
            # Count from now on, and anew whenever a runner has moved: the last runner may just have come back from a
            # long handler.
            self._all_hang_since = moved, now
        self._slot[HUNG_SINCE] = 0.0 if moved is None else self._all_hang_since[1]
        return running

    def run_time_slice(self, lanes: list[Lane]) -> list[Lane]:
        """Run events of these queues (lanes) in this thread for one time slice. Return the queues that the caller must
        give back."""
        # Each lane holds the events of one key.
        return self._run_slice(lanes, self._settlement.reports.build_tally())

    def _run_slice(self, lanes: list[Lane], tally: Tally | None) -> list[Lane]:
        began = lanes[0].started_at
        if tally is not None:
            tally.begin_slice(began)
        ended = self._run_lanes(lanes, self._runner.begin_run(began + self._slice_seconds, tally))
        if self._engine.is_forked:
            exit_forked(None)
        if tally is not None and tally.end_slice():
            self._settlement.reports.report_delivered(tally)
        return ended

    def _run_lanes(self, lanes: list[Lane], run: LaneRun) -> list[Lane]:
        # The lanes that the caller must end are returned when the time slice is over.
        # The lanes run one after another. The time is checked at each start of a handler.
        ended: list[Lane] = []
        for at, lane in enumerate(lanes, start=1):
            if (handoff := self._runner.run(lane, run)) is None:
                ended.append(lane)
            else:
                ended += self._hand_over(lane, handoff[0], run.tally)
            if lane.started_at > run.ends_at:
                return ended + lanes[at:]
        return ended

    def _note_busy(self, busy: bool) -> None:
        self._slot[RUNNING_SINCE] = boottime() if busy else 0.0

    def _hire(self) -> None:
        thread = threading.Thread(target=self._run, name=f"partbox-handler-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        lanes: list[Lane] = []
        tally = self._settlement.reports.build_tally()
        try:
            while lanes := self._wait_for_lanes(lanes, tally):
                lanes = self._run_slice(lanes, tally)
        except BaseException as error:
            self._signals.report_failure(error)

    def _wait_for_lanes(self, ended: list[Lane], tally: Tally | None) -> list[Lane]:
        while isinstance(lanes := self._runner.take_next_lanes(ended, tally), NoLane):
            ended = []
            if lanes is NoLane.STOPPED:
                return []
            if lanes is NoLane.UNTRUSTED:
                time.sleep(UNTRUSTED)
            elif lanes is not NoLane.WATCH or not self._watch_shared_lanes():
                self._wakeups.get()
        return lanes

    def _watch_shared_lanes(self) -> bool:
        # A shared lane holds events of several keys. It is split if its running event blocks others.
        # The checks are made at short intervals. The result is True once this runner is woken, and False if nothing has
        # blocked others for `MAX_IDLE_CHECKS` checks. A check that woke up in time got the interpreter at once, so the
        # handlers wait and do not compute.
        idle_checks = 0
        while idle_checks < MAX_IDLE_CHECKS or not self._scheduler.stop_watching(called=False):
            began, before = time.monotonic(), self._last_check
            if began - before.checked_at > RECENT:
                before = WatchedLanes(began, woke_in_time=False, shared_lanes={})
            try:
                # Wait for the rest of the interval since the last check by any runner. With a full interval, a runner
                # that is woken again and again would never check.
                self._wakeups.get(timeout=max(WATCH_INTERVAL / 10, before.checked_at + WATCH_INTERVAL - began))
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
        # The next event of the lane is for another thread or for the event loop, while this runner takes other lanes.
        # The lanes that the caller must end are returned.
        # The handler needs this thread, the event loop, or the thread for transactions. No lanes are returned if the
        # event loop ends them.
        if tally is not None:
            self._settlement.reports.report_delivered(tally)
        is_limited, others = endpoint.run_kind is RunKind.LIMITED, list[Lane]()
        if endpoint.kind is RunKind.TRANSACTIONAL:
            self._scheduler.hand_to_transactor(lane)
        elif is_limited and not self._runner.has_permit(lane):
            # The lane waits for a permit.
            pass
        elif endpoint.kind is RunKind.BATCH and not endpoint.handler.is_async:
            others = self._batch_runner.run(lane, endpoint)
            if tally is not None:
                tally.begin_slice(time.monotonic())
        elif is_limited and endpoint.kind is RunKind.SYNC:
            self._runner.run(lane, self._runner.begin_single_run(tally))
        else:
            self._loop.start_runner(lambda: self._run_lane_async(lane, endpoint))
            return []
        if is_limited:
            # Before the lane ends, because the queue in which it waits is chosen then.
            self._limits.set_limit_keys(lane)
        return [lane, *others]

    async def _run_lane_async(self, lane: Lane, endpoint: Endpoint) -> None:
        # The events of the lane run in the event loop, then the lane is ended.
        # If the loop itself is ended, the lane stays open: its cancelled events are not done, and its partition is not
        # released.
        others: list[Lane] = []
        try:
            await self._loop.wait_for_slice()
            if endpoint.kind is RunKind.BATCH:
                others = await self._batch_runner.run_async(lane, endpoint)
            else:
                tally = self._settlement.reports.build_tally()
                began = time.monotonic()
                if tally is not None:
                    tally.begin_slice(began)
                ends, latest_end = self._loop.compute_slice_bounds(began, self._slice_seconds)
                run = self._runner.begin_run(ends, tally, RunKind.ASYNC, latest_end=latest_end)
                if endpoint.run_kind is RunKind.LIMITED:
                    run = self._runner.begin_single_run(tally)
                await self._runner.run_async(lane, run, asyncio.current_task())
                if tally is not None:
                    # The handler that follows takes its own time, so report deliveries before.
                    self._settlement.reports.report_delivered(tally)
            if endpoint.run_kind is RunKind.LIMITED:
                self._limits.set_limit_keys(lane)
        except Exception as error:
            self._signals.report_failure(error)
        self._scheduler.end_lanes([lane, *others])
