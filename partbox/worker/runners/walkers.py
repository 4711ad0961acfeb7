"""Runs async handlers where all are: tasks of the event loop that take lanes, as runner threads do."""

import asyncio
import time
from collections import deque
from queue import SimpleQueue

from partbox.worker.context import Signals
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.runs import Rest, Runs
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.runners.endpoint import Kind
from partbox.worker.runners.event_loop import EventLoop, undisturbed
from partbox.worker.runners.lane_runner import LaneRunner
from partbox.worker.runners.settlement import Settlement

UNTRUSTED = 0.02  # seconds between two looks at a lease that is over


class Walkers:
    """The walkers of one process, each of which has one lane at a time."""

    def __init__(
        self, runs: Runs, runner: LaneRunner, settlement: Settlement, loop: EventLoop, turn: float, signals: Signals
    ) -> None:
        self._runs = runs
        self._runner = runner
        self._settlement = settlement
        self._loop = loop
        self._turn = turn
        self._signals = signals
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
                    await self._runner.walk_async(lane, walk, task)
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
