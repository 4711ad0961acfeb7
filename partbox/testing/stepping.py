"""The delivery code of a worker without its threads: a worker that is stepped by hand, and `hand`, without the log.

`step` hands over one event, that of the lowest id which waits, in the caller's thread; an async handler runs in the
event loop of `await_it`. What ran once does not run again: a retry that is due at once waits for another drain.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from math import inf
from typing import Any

from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.observe import Observers
from partbox.outbox import Outbox
from partbox.testing.outcomes import Drained, OutcomeNotes
from partbox.worker.engine.partition import DeadLetterLane, Lane
from partbox.worker.reports.delivery_counts import Tally
from partbox.worker.reports.outcomes import Reports
from partbox.worker.runners.dispatcher import Dispatcher
from partbox.worker.runners.endpoint import Endpoint, Kind
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.lane_runner import Walk
from partbox.worker.worker import Worker

Await = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a coroutine to its end."""


class _OneByOne(EventLoop):
    """Runs each coroutine to its end before it returns."""

    await_it: Await

    def start(self, walk: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.await_it(walk())

    def stop(self, closing: Iterable[Callable[[], Awaitable[None]]] = ()) -> bool:
        return False


class Stepper(Dispatcher):
    """A dispatcher without runners. `events` of its lanes have run when `step` says so."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._engine.runners.lone = False  # the next is that of the lowest id, whatever its partition
        self._loop: _OneByOne = _OneByOne()
        self._ran: set[int] = set()

    def prepare(self, await_it: Await, ran: set[int]) -> None:
        """Run async handlers by `await_it`; events whose ids are in `ran`, which grows, do not run again."""
        self._loop.await_it, self._ran = await_it, ran

    def first(self) -> int | None:
        """The lowest id that waits and has not run yet, if any does."""
        with self._lock:
            lane = self._first()
            return None if lane is None else _head(lane)

    def step(self) -> bool:
        """Hand over the event of the lowest id that waits and has not run yet; False if there is none."""
        ready = self._ready
        with self._lock:
            lane = self._first()
            if lane is not None:
                (ready.fresh if lane in ready.fresh else ready.due).remove(lane)
            lanes = self._begin([lane]) if lane is not None else []
        if not lanes:
            return False
        tally = self._settlement.reports.tally()
        ended = self._walk_all(lanes, self._new_walk(lanes[0].started, tally))
        if tally is not None and tally.end():
            self._settlement.reports.delivered(tally)
        with self._lock:
            self._end(ended)
        return True

    def _summon(self, runners: int) -> None:
        """No runners: `step` is called."""

    def _new_walk(self, began: float, tally: Tally | None) -> Walk:
        walk = super()._new_walk(began, tally)
        walk.ends = -inf  # after one event
        return walk

    def _more(self, endpoint: Endpoint, most: int) -> list[Lane]:
        self._sort()
        return super()._more(endpoint, most)

    def _waits_for(self, endpoint: Endpoint, lane: Lane) -> bool:
        return self._may_run(lane) and super()._waits_for(endpoint, lane)

    def _first(self) -> Lane | None:
        self._sort()
        heads = [next(filter(self._may_run, queue), None) for queue in (self._ready.fresh, self._ready.due)]
        return min((lane for lane in heads if lane is not None), key=_head, default=None)

    def _sort(self) -> None:
        """By the ids of what they have at their heads; those that have nothing any more go first, and end."""
        ready = self._ready
        ready.fresh, ready.due = (deque(sorted(queue, key=_head)) for queue in (ready.fresh, ready.due))

    def _may_run(self, lane: Lane) -> bool:
        """Unless what it has at its head ran before. What blocks nothing does not stand in the way of others then."""
        if isinstance(lane, DeadLetterLane):
            return True
        while lane.queue and lane.queue[0].id in self._ran:
            if lane.queue[0].parked is None or lane.queue[0].parked.blocks:
                return False
            lane.queue.popleft()
        return True


class Stepped(Worker):
    """A worker that does nothing by itself."""

    dispatchers = Stepper
    dispatcher: Stepper

    def start(self) -> None:
        """Tell the observers that it begins, no more."""
        self._context.observers.started(self._about)


def _head(lane: Lane) -> int:
    return lane.queue[0].id if lane.queue else 0


def hand(outbox: Outbox, events: Sequence[DeliveredEvent], conn: Any, await_it: Await) -> Drained:
    """Hand these events to their handlers without the log, one after the other: nothing is parked.

    For events that no worker can see: of a transaction that is rolled back at the end of a test, or built by hand.
    `conn` is for transactional handlers.
    """
    notes = OutcomeNotes()
    observers = Observers([*outbox.handlers.observers, notes])
    limit, interceptors = outbox.settings.error_limit, outbox.handlers.interceptors
    routes = {
        name: outbox.handlers.routes(name, outbox.settings).map(
            lambda handler: Endpoint(handler, interceptors, limit, observers)
        )
        for name in {event.subscription for event in events}
    }
    for event in events:
        mine = routes[event.subscription]
        endpoint, started = mine[event.event_type, event.aggregate_type], time.monotonic()
        result = _result(endpoint, event, conn, await_it)
        Reports(observers, mine).settled(event, endpoint.judge(event, result, started), result)
        if notes.fatal is not None:
            raise notes.fatal
    return Drained(notes.outcomes)


def _result(endpoint: Endpoint, event: DeliveredEvent, conn: Any, await_it: Await) -> object:
    handler = endpoint.handler
    if endpoint.kind is Kind.TRANSACTIONAL and conn is None:
        raise PartboxError(f"{handler.name} is transactional: pass the connection that it is to use, conn=…")
    given: Any = [event] if handler.max_size is not None else event
    result: object = None

    async def call() -> None:
        nonlocal result
        result = await EventLoop.call(endpoint.call, given, handler.timeout)

    if handler.is_async:
        await_it(call())
    else:
        try:
            result = endpoint.call(given, conn) if endpoint.kind is Kind.TRANSACTIONAL else endpoint.call(given)
        except BaseException as error:  # also SystemExit: it is the handler's error
            result = error
    return result[0] if handler.max_size is not None and isinstance(result, list) and len(result) == 1 else result
