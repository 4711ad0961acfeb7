"""The delivery code of a worker without its threads, which tests step by hand.

`step_worker` is for a worker whose `RunnerSetup` has a `LowestIdQueue`, an `InlineEventLoop` and time slices that end
at once. `call_handlers` needs no log, and calls transactional handlers in a test's transaction, each in a savepoint."""

import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from math import inf
from typing import Any, TypeVar

from psycopg import Connection

from partbox.db.deadline import NO_DEADLINE
from partbox.errors import PartboxError
from partbox.events import DeliveredEvent
from partbox.events.delivered import ProcessState
from partbox.handlers import Handler
from partbox.handlers.handler import Routes
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
# A function that runs a coroutine to its end.
Await = Callable[[Coroutine[Any, Any, None]], None]


class InlineEventLoop(EventLoop):
    """A test replacement for a worker's event loop, which runs each coroutine to its end before the call returns."""

    def __init__(self, await_it: Await) -> None:
        super().__init__()
        self._await_it = await_it

    def start_runner(self, run_lanes: Callable[[], Coroutine[Any, Any, None]]) -> None:
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
    """A queue that returns the events of the key whose first event has the lowest id.

    The events of a key that are ready are a lane, and the queue returns lanes. Events in `ran` do not run again, so
    that a retry that is due at once waits for another drain. `take` returns only lanes whose first event is below
    `before`."""

    def __init__(self, ran: set[int]) -> None:
        self._delivered_ids = ran
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
        (self._lanes.new_lanes if lane in self._lanes.new_lanes else self._lanes.due_lanes).remove(lane)
        return [lane]

    def take_joining(self, joining: Callable[[Lane], int], most: int) -> list[Lane]:
        self._sort_lanes()
        return self._lanes.take_joining(lambda lane: joining(lane) if self._may_run(lane) else 0, most)

    def _find_first(self) -> Lane | None:
        self._sort_lanes()
        heads = [next(filter(self._may_run, queue), None) for queue in (self._lanes.new_lanes, self._lanes.due_lanes)]
        lane = min((lane for lane in heads if lane is not None), key=_head_id_of, default=None)
        return None if lane is None or _head_id_of(lane) >= self.before else lane

    def _sort_lanes(self) -> None:
        # Empty lanes come first, so that they end.
        lanes = self._lanes
        lanes.new_lanes, lanes.due_lanes = (
            deque(sorted(queue, key=_head_id_of)) for queue in (lanes.new_lanes, lanes.due_lanes)
        )

    def _may_run(self, lane: Lane) -> bool:
        """Return True unless the first event of the lane (a queue of one key) has already run."""
        # This counts for the present drain. Events that ran and block nothing are dropped first.
        while lane.queue and lane.queue[0].id in self._delivered_ids:
            if lane.queue[0].parked is None or lane.queue[0].parked.blocks:
                return False
            lane.queue.popleft()
        return True


def step_worker(worker: Worker) -> bool:
    """Deliver the worker's next event in this thread, or else call the dead-letter hook. Return False if nothing was
    done."""
    # The hook is called if no event is ready.
    scheduler, dispatcher = worker.engine.scheduler, worker.dispatcher
    lanes = scheduler.take_next_lanes([], time.monotonic(), trusted=True, waits=False)
    if isinstance(lanes, NoLane):
        return worker.dead_letters.run_once(pauses=False)
    scheduler.end_lanes(dispatcher.run_time_slice(lanes))
    return True


def _head_id_of(lane: Lane) -> int:
    return lane.queue[0].id if lane.queue else 0


def call_handlers(outbox: Outbox, events: Iterable[DeliveredEvent], conn: Any, await_it: Await) -> Drained:
    """Call the handlers with these events, one after the other, without saving outcomes."""
    # `conn` is for transactional handlers. The next of `events` is taken when the one before has been handled.
    # This is for events that no worker can see, because their transaction is rolled back at the end of a test or they
    # were built by hand. The hooks of a session, and everything else that happens at the end of the transaction, are
    # left to the test that ends it.
    process = ProcessState()
    lifespan = ProcessLifespan(outbox.handlers.process_lifespan, InlineEventLoop(await_it), process)
    lifespan.enter()
    try:
        drained = _call_each(outbox, (event.with_process(process) for event in events), conn, await_it)
    finally:
        lifespan.leave(outbox.settings.drain_timeout)
    if lifespan.error is not None:
        raise lifespan.error
    return drained


def _call_each(outbox: Outbox, events: Iterable[DeliveredEvent], conn: Any, await_it: Await) -> Drained:
    recorder = OutcomeRecorder()
    observers = Observers([*outbox.handlers.observers, recorder])
    limit, interceptors = outbox.settings.error_limit, outbox.handlers.interceptors

    @cache
    def build_routes(subscription: str) -> Routes[Endpoint]:
        return outbox.handlers.build_routes(subscription, outbox.settings).map_handlers(
            lambda handler: Endpoint(handler, interceptors, limit, observers)
        )

    for event in events:
        subscription_routes = build_routes(event.subscription)
        endpoint, started = subscription_routes[event.event_type, event.aggregate_type], time.monotonic()
        result = _call_endpoint(endpoint, event, conn, await_it)
        EventReports(observers, subscription_routes).report_settled(
            event, endpoint.judge(event, result, started), result
        )
        if recorder.fatal is not None:
            raise recorder.fatal
    return Drained(recorder.outcomes)


def _call_endpoint(endpoint: Endpoint, event: DeliveredEvent, conn: Any, await_it: Await) -> object:
    handler = endpoint.handler
    savepoint = None if endpoint.transaction is None else find_savepoint(endpoint, conn)
    given: Any = [event] if handler.max_size is not None else event
    result: object = None

    async def call() -> None:
        nonlocal result
        result = await EventLoop.run_handler(endpoint.call_handler, given, handler.timeout)

    if handler.is_async:
        await_it(call())
    else:
        try:
            result = (
                endpoint.call_handler(given) if savepoint is None else call_in_savepoint(endpoint, event, savepoint)
            )
        # SystemExit included, which is the handler's error too.
        except BaseException as error:
            result = error
    return result[0] if handler.max_size is not None and isinstance(result, list) and len(result) == 1 else result


# Yields the arguments that a handler gets behind its event.
Savepoint = AbstractContextManager[tuple[Any, ...]]


def find_savepoint(endpoint: Endpoint, conn: Any) -> Savepoint:
    """Return a savepoint on `conn` for calling a transactional handler. Raise PartboxError if `conn` has none."""
    name = endpoint.handler.name
    if endpoint.transaction is TransactionKind.DJANGO:
        return _django_savepoint()
    if endpoint.handler.is_async:
        raise PartboxError(
            f"{name} is async and transactional, and a connection belongs to the event loop that made it: commit the "
            "published events, and use drain()"
        )
    if conn is None:
        raise PartboxError(f"{name} is transactional: pass the connection that the handler is to use, conn=…")
    if endpoint.transaction is TransactionKind.PSYCOPG:
        return _psycopg_savepoint(conn)
    from sqlalchemy.engine import Connection as CoreConnection

    found = conn
    if callable(getattr(conn, "connection", None)):
        # The handler has a session of its own, which would not see objects that the test has only added to its session.
        conn.flush()
        found = conn.connection()
    if isinstance(found, CoreConnection):
        return _sqlalchemy_savepoint(found, endpoint.handler)
    raise PartboxError(
        f"{name} takes a session of SQLAlchemy: pass the SQLAlchemy session or connection whose transaction the "
        "handler is to use, conn=…"
    )


def call_in_savepoint(endpoint: Endpoint, event: DeliveredEvent, savepoint: Savepoint) -> Any:
    """Call a handler inside a savepoint, and roll back unless the event is done. Return the handler's value."""
    # An error of the handler is raised.
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
    from partbox.worker.runners.effects.django import get_connection, hold_savepoint

    with hold_savepoint(get_connection(), NO_DEADLINE):
        yield ()


@contextmanager
def _psycopg_savepoint(on: Any) -> Iterator[tuple[Any, ...]]:
    conn = find_psycopg(on)
    if not isinstance(conn, Connection):
        raise PartboxError("this handler is synchronous, and the connection asynchronous: pass a synchronous one")
    with conn.transaction():
        yield (conn,)


@contextmanager
def _sqlalchemy_savepoint(on: Any, handler: Handler) -> Iterator[tuple[Any, ...]]:
    from partbox.worker.runners.effects.sqlalchemy import open_session

    with open_session(on, handler) as (here, given):
        yield (given,)
        here.prepare()
