"""The delivery code of a worker without its threads: what steps a worker by hand, and `call_handlers`, without the log.

`step_worker` hands over one event in the caller's thread. A worker does so whose `RunnerSetup` has `LowestIdQueue`,
`InlineEventLoop` and a turn that is over at once: that of the lowest id which waits; an async handler runs in the event
loop of `await_it`. What ran once does not run again: a retry that is due at once waits for another drain.

`call_handlers` calls transactional handlers in the transaction of a test, each in a savepoint of it. What ends with the
transaction, such as the hooks of a session, is left to the test that ends it.
"""

import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import inf
from typing import Any, TypeVar

from partbox.db.deadline import NO_DEADLINE
from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.events.delivered import ProcessState
from partbox.handlers import Handler
from partbox.handlers.transactional import TransactionKind
from partbox.observe import Observers
from partbox.outbox import Outbox
from partbox.outcomes import Done
from partbox.testing.outcomes import Drained, OutcomeRecorder
from partbox.testing.statements import find_psycopg
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.ready_queue import ReadyQueue
from partbox.worker.engine.scheduler import NoLane
from partbox.worker.reports.outcomes import EventReports
from partbox.worker.runners.effects.effects import NotDone
from partbox.worker.runners.endpoint import Endpoint
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.process_lifespan import ProcessLifespan
from partbox.worker.worker import Worker

T = TypeVar("T")
Await = Callable[[Coroutine[Any, Any, None]], None]
"""Runs a coroutine to its end."""


class InlineEventLoop(EventLoop):
    """An event loop that never begins: each coroutine runs to its end before it returns."""

    def __init__(self, await_it: Await) -> None:
        super().__init__()
        self._await_it = await_it

    def start(self, run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._await_it(run_lanes())

    def call_soon(self, callback: Callable[[], object]) -> None:
        callback()

    def submit(self, function: Callable[[], Coroutine[Any, Any, T]]) -> "Future[T]":
        done = Future[T]()

        async def run() -> None:
            try:
                done.set_result(await function())
            except BaseException as error:
                done.set_exception(error)

        self._await_it(run())
        return done


class LowestIdQueue:
    """The ready lanes, of which the one with the lowest id at its head is next; what is in `ran` does not run again.

    `before`: `take` has only what is below this id.
    """

    def __init__(self, ran: set[int]) -> None:
        self._ran = ran
        self._lanes = ReadyQueue(1)
        self.before: float = inf

    def __len__(self) -> int:
        return int(self._find_first() is not None)

    def add(self, lanes: Sequence[Lane], *, due: bool) -> None:
        self._lanes.add(lanes, due=due)

    def take(self) -> list[Lane]:
        lane = self._find_first()
        if lane is None:
            return []
        (self._lanes.fresh if lane in self._lanes.fresh else self._lanes.due).remove(lane)
        return [lane]

    def take_joining(self, joining: Callable[[Lane], int], most: int) -> list[Lane]:
        self._sort_lanes()
        return self._lanes.take_joining(lambda lane: joining(lane) if self._may_run(lane) else 0, most)

    def _find_first(self) -> Lane | None:
        self._sort_lanes()
        heads = [next(filter(self._may_run, queue), None) for queue in (self._lanes.fresh, self._lanes.due)]
        lane = min((lane for lane in heads if lane is not None), key=_head, default=None)
        return None if lane is None or _head(lane) >= self.before else lane

    def _sort_lanes(self) -> None:
        """By the ids of what they have at their heads; those that have nothing any more go first, and end."""
        lanes = self._lanes
        lanes.fresh, lanes.due = (deque(sorted(queue, key=_head)) for queue in (lanes.fresh, lanes.due))

    def _may_run(self, lane: Lane) -> bool:
        """Unless what it has at its head ran before. What blocks nothing does not stand in the way of others then."""
        while lane.queue and lane.queue[0].id in self._ran:
            if lane.queue[0].parked is None or lane.queue[0].parked.blocks:
                return False
            lane.queue.popleft()
        return True


def step_worker(worker: Worker) -> bool:
    """Hand over the event that is next in a worker that was made with a `RunnerSetup`, dead ones to their hook when
    there is no other; False if there is none."""
    scheduler, dispatcher = worker.engine.scheduler, worker.dispatcher
    lanes = scheduler.next([], time.monotonic(), trusted=True, waits=False)
    if isinstance(lanes, NoLane):
        return worker.dead_letters.run_once(pauses=False)
    scheduler.end(dispatcher.run_time_slice(lanes))
    return True


def _head(lane: Lane) -> int:
    return lane.queue[0].id if lane.queue else 0


def call_handlers(outbox: Outbox, events: Sequence[DeliveredEvent], conn: Any, await_it: Await) -> Drained:
    """Hand these events to their handlers without the log, one after the other: nothing is parked.

    For events that no worker can see: of a transaction that is rolled back at the end of a test, or built by hand.
    `conn` is for transactional handlers.
    """
    process = ProcessState()
    lifespan = ProcessLifespan(outbox.handlers.process_lifespan, InlineEventLoop(await_it), process)
    lifespan.enter()
    try:
        drained = _call_each(outbox, [event.within(process) for event in events], conn, await_it)
    finally:
        lifespan.leave(outbox.settings.drain_timeout)
    if lifespan.error is not None:
        raise lifespan.error
    return drained


def _call_each(outbox: Outbox, events: Sequence[DeliveredEvent], conn: Any, await_it: Await) -> Drained:
    recorder = OutcomeRecorder()
    observers = Observers([*outbox.handlers.observers, recorder])
    limit, interceptors = outbox.settings.error_limit, outbox.handlers.interceptors
    routes = {
        name: outbox.handlers.routes(name, outbox.settings).map(
            lambda handler: Endpoint(handler, interceptors, limit, observers)
        )
        for name in {event.subscription for event in events}
    }
    for event in events:
        subscription_routes = routes[event.subscription]
        endpoint, started = subscription_routes[event.event_type, event.aggregate_type], time.monotonic()
        result = _result(endpoint, event, conn, await_it)
        EventReports(observers, subscription_routes).report_settled(
            event, endpoint.judge(event, result, started), result
        )
        if recorder.fatal is not None:
            raise recorder.fatal
    return Drained(recorder.outcomes)


def _result(endpoint: Endpoint, event: DeliveredEvent, conn: Any, await_it: Await) -> object:
    handler = endpoint.handler
    savepoint = None if endpoint.transaction is None else find_savepoint(endpoint, conn)
    given: Any = [event] if handler.max_size is not None else event
    result: object = None

    async def call() -> None:
        nonlocal result
        result = await EventLoop.call(endpoint.call, given, handler.timeout)

    if handler.is_async:
        await_it(call())
    else:
        try:
            result = endpoint.call(given) if savepoint is None else call_in_savepoint(endpoint, event, savepoint)
        except BaseException as error:  # also SystemExit: it is the handler's error
            result = error
    return result[0] if handler.max_size is not None and isinstance(result, list) and len(result) == 1 else result


Savepoint = AbstractContextManager[tuple[Any, ...]]
"""Gives what a handler gets behind its event."""


def find_savepoint(endpoint: Endpoint, conn: Any) -> Savepoint:
    """The savepoint for a handler of this kind on `conn`. PartboxError, with the remedy, if `conn` has none for it."""
    name = endpoint.handler.name
    if endpoint.transaction is TransactionKind.DJANGO:
        return _django_savepoint()
    if endpoint.handler.is_async:
        raise PartboxError(
            f"{name} is async and transactional, and a connection belongs to the event loop that made it: commit what "
            "was published, and use drain()"
        )
    if conn is None:
        raise PartboxError(f"{name} is transactional: pass the connection that it is to use, conn=…")
    if endpoint.transaction is TransactionKind.PSYCOPG:
        return nullcontext((find_psycopg(conn),))
    from sqlalchemy.engine import Connection

    found = conn.connection() if callable(getattr(conn, "connection", None)) else conn
    if isinstance(found, Connection):
        return _sqlalchemy_savepoint(found, endpoint.handler)
    raise PartboxError(
        f"{name} gets a session of SQLAlchemy: pass a session or a connection of that, whose transaction it is to use, "
        "conn=…"
    )


def call_in_savepoint(endpoint: Endpoint, event: DeliveredEvent, savepoint: Savepoint) -> Any:
    """Return what the handler returns, or raise what it raises."""
    result: Any = None
    try:
        with savepoint as given:
            result = endpoint.context().run(endpoint.wrapped_call, event, *given)
            if result is not None and not isinstance(result, Done):
                raise NotDone
    except NotDone:
        return result
    return result


@contextmanager
def _django_savepoint() -> Iterator[tuple[()]]:
    from partbox.worker.runners.effects.django import connection, within

    with within(connection(), NO_DEADLINE):
        yield ()


@contextmanager
def _sqlalchemy_savepoint(on: Any, handler: Handler) -> Iterator[tuple[Any, ...]]:
    from partbox.worker.runners.effects.sqlalchemy import open_session

    with open_session(on, handler) as (here, given):
        yield (given,)
        here.prepare()
