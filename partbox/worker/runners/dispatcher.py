"""The threads that run handlers: they ask the engine for lanes, walk them, and say which have ended.

A runner takes one lane at a time; one whose next handler is `async def` goes on in an event loop, a transactional one
in the thread of those, and its runner turns to the next. Threads are made when they are needed. One that has no lane
waits for a call, of which the engine makes one for each runner that is to look again (`engine.runs`).
"""

import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

from partbox.platform import boottime
from partbox.worker.context import Context
from partbox.worker.engine.partition import DeadLetterLane, Lane
from partbox.worker.engine.ready_queue import Queue
from partbox.worker.engine.runs import Rest
from partbox.worker.fork_safety import leave
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.runners import dead_letters
from partbox.worker.runners.batches import Batches
from partbox.worker.runners.endpoint import Endpoint, Kind
from partbox.worker.runners.lane_runner import LANE_TURN, LaneRunner, Walk
from partbox.worker.runners.settlement import Settlement
from partbox.worker.runners.two_loops import watch
from partbox.worker.slot import RUNNING_SINCE

UNTRUSTED = 0.02  # seconds between two looks at a lease that is over


class Loop(Protocol):
    """Runs what is `async def`, as `EventLoop` does."""

    def start(self, walk: Callable[[], Coroutine[Any, Any, None]]) -> None: ...

    def stop(self, closing: Iterable[Callable[[], Awaitable[None]]] = ()) -> bool: ...

    def disown(self) -> None: ...


class Drive(NamedTuple):
    """The parts that step deliveries: whose turn is next, what runs async handlers, the seconds that a turn may last.

    `lone`: one runner walks everything, in the order of each partition.
    """

    queue: Queue
    loop: Loop
    turn: float = LANE_TURN
    lone: bool = False


class Dispatcher:
    """The runners of one process."""

    def __init__(self, context: Context, runner: LaneRunner, settlement: Settlement, drive: Drive) -> None:
        self._engine = engine = context.engine
        self._runs = engine.runs
        self._runner = runner
        self._settlement = settlement
        self._batches = Batches(engine, runner, settlement)
        self._dead_letter = context.dead_letter
        self._slot = context.slot
        self._signals = context.signals
        self._calls = SimpleQueue[None]()
        self._threads: list[threading.Thread] = []
        self._loop, self._turn = drive.loop, drive.turn
        if any(endpoint.handler.is_async for endpoint in runner.routes.all()):
            watch()
        engine.wakes.busy = self._note_busy

    def start(self) -> None:
        """Let there be runners: before this lanes that are ready wait."""
        wakes = self._engine.wakes
        wakes.run, wakes.hire = partial(self._calls.put, None), self._hire

    def join(self, until: float) -> bool:
        """Wait for the runners until then (monotonic seconds), cancel async handlers; False if some still run."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        handlers = (endpoint.handler for endpoint in self._runner.routes.all())
        cancelled = self._loop.stop({handler.close for handler in handlers if handler.close is not None})
        return not cancelled and not any(thread.is_alive() for thread in self._threads)

    def disown(self) -> None:
        """In a forked process: walk nothing on."""
        self._runs.disown()
        self._loop.disown()

    def note_running(self) -> list[Lane]:
        """The lanes whose handlers run now; the supervisor is told since when the longest does."""
        running = self._runs.running()
        oldest = min((lane.started for lane in running), default=0.0)
        self._slot[RUNNING_SINCE] = boottime() - (time.monotonic() - oldest) if oldest else 0.0
        return running

    def turn(self, lanes: list[Lane]) -> list[Lane]:
        """A turn over these lanes, which run, in the caller's thread; those that are to be ended."""
        return self._take_turn(lanes, self._settlement.reports.tally())

    def _take_turn(self, lanes: list[Lane], tally: Tally | None) -> list[Lane]:
        ended = self._walk_all(lanes, self._new_walk(lanes[0].started, tally))
        if self._engine.forked:
            leave(None)
        if tally is not None and tally.end():
            self._settlement.reports.delivered(tally)
        return ended

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
        """End these lanes and wait for the next to run; none when it is time to go. Tells before it waits."""
        while True:
            owed = tally if tally is not None and tally.oldest is not None else None
            trusted = self._runner.trusted()
            lanes = self._runs.next(ended, time.monotonic(), trusted=trusted, waits=owed is None)
            if not isinstance(lanes, Rest):
                return lanes
            ended = []
            if owed is not None:
                self._settlement.reports.delivered(owed)
            elif lanes is Rest.STOPPED:
                return []
            elif lanes is Rest.UNTRUSTED:
                time.sleep(UNTRUSTED)
            else:
                self._calls.get()

    def _new_walk(self, began: float, tally: Tally | None) -> Walk:
        if tally is not None:
            tally.begin(began)
        return self._runner.begin(began + self._turn, tally)

    def _go_on(self, lane: Lane, endpoint: Endpoint, tally: Tally | None) -> bool:
        """Its next event is not for a runner alone; False if the event loop will end the lane."""
        if tally is not None:
            self._settlement.reports.delivered(tally)  # what follows takes its own time
        if endpoint.kind is Kind.TRANSACTIONAL:
            self._runs.leave_to_transactor(lane)
        elif endpoint.kind is Kind.LISTS and not endpoint.handler.is_async:
            self._runs.end(self._batches.run(lane, endpoint))
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
                await self._runner.walk_async(lane, self._new_walk(time.monotonic(), self._settlement.reports.tally()))
        except Exception as error:
            self._signals.failed(error)
        self._runs.end([lane, *others])
