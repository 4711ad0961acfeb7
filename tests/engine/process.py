"""One worker process of the parts that ship, without their threads: each of these goes on when the test says so.

The parts are made and wired by `Worker`, which is never started. What its threads do in turn is done here by fibers:
the poller's sessions and looks, saves, transactions; a runner's fiber is its thread, from its first lane to its end.
Async handlers run in a loop that is stepped.

All pause at statements and in handlers. Told so (`between`), they pause between other steps too: whatever a runner does
without the engine's lock has a look at the clock or a take from its queue before it and after it (see `fibers`). So
another thread comes between its looks at `stopping`, at the lease and at the incarnation; while an event is in its
hands; when the handler has returned and nothing is noted; before its lanes end. And a runner takes from a queue while
another thread holds it, sorts it or forgets it, in the middle of a critical section.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from math import inf
from queue import Empty
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import lock_check
import pytest
from fibers import Between, Fiber, FiberLock, LaneQueue, pause
from model_clock import SLEEPS
from model_handlers import Handling, HandlingProcess, Killed, Shape, Watcher
from psycopg import Error
from statements import Fate, Sent

from partbox.codecs import Codecs
from partbox.db.delivery import proof
from partbox.events import DeliveredEvent
from partbox.events.record import PARTITION
from partbox.handlers import Handlers
from partbox.protocol.retry import Fixed
from partbox.settings import load
from partbox.worker.engine import partition
from partbox.worker.engine.key import key_of
from partbox.worker.engine.partition import Lane
from partbox.worker.poller import full_poll
from partbox.worker.runners import transactor
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.runners.loop_hosts import ThreadLoop
from partbox.worker.slot import DEADLINE, STOPPING, Slot
from partbox.worker.worker import Worker

AGAIN = 1.0  # seconds until what has failed is tried again
WAITS = Between("waits to be called")  # a runner
WATCHES = Between("watches the lines that run")  # a runner
ENDED = Between("has ended its lanes")  # a runner
RESTING = (WAITS, WATCHES, ENDED, SLEEPS)
STEPS = 100  # of a loop, until nothing is ready in it


class Taken(NamedTuple):
    """What was known when a runner took a record: the epoch of its partition, and the replayed rows that waited."""

    record: Any
    epoch: int
    replayed: Collection[int]


class _Calls:
    """Calls for runners that wait."""

    def __init__(self) -> None:
        self.count = 0
        self.timeout = 0.0  # seconds that whoever watches waits

    def put(self, _: None) -> None:
        self.count += 1

    def get(self, timeout: float | None = None) -> None:
        self.timeout = timeout or 0.0
        while not self.count:
            pause(WAITS if timeout is None else WATCHES)
            if timeout is not None and not self.count:
                raise Empty
        self.count -= 1


class _SteppedLoop(EventLoop):
    """The loop of async handlers; what waits in it goes on when the test lets it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._host: Any = ThreadLoop(lambda: loop)
        self._host._loop = loop  # begun already, without a thread

    def start_runner(self, run_lanes: Callable[[], Any]) -> None:
        self._start_task(run_lanes)


class Process(HandlingProcess):
    """Its actors are called by name: `poller`, `saver`, `transactor`; `runner 0` and so on, as they are hired."""

    acting: "Process"  # the one that goes on now

    def __init__(self, watcher: Watcher, me: UUID, name: str, shape: Shape, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(watcher, shape, loop)
        self.me, self.name = me, name
        self._database = watcher.connection(self).database
        self.claims = 0  # sessions begun: with each all is read anew
        self.running: dict[int, UUID] = {}  # by the number of an event, under which identity its handler began
        self._fibers: dict[str, Fiber] = {}
        self._taken: dict[int, Taken] = {}  # by the identity of the record, which comes anew when it is read anew
        self._session: Any = None
        self.slot = Slot.create_local()
        self.slot.instance = me
        self.trust()
        self.worker = _worker(self.handlers(), self.slot, shape)
        self.poller, self.engine = self.worker.poller, self.worker.engine
        self.engine.credits.set_held_up(lambda: bool(shape.away))
        scheduler: Any = self.engine.scheduler
        scheduler._uses_shared_lanes &= shape.lines or (shape.concurrency == 1 and shape.kind == "sync")
        dispatcher: Any = self.worker.dispatcher
        self._async = dispatcher._loop = _SteppedLoop(loop)
        self._wakeups = dispatcher._wakeups = _Calls()
        dispatcher._hire = partial(self._hire, dispatcher._run)
        dispatcher._wait_for_lanes = partial(self._wait_for_lanes, dispatcher._wait_for_lanes)
        dispatcher.start()
        self.worker._context.signals.report_failure = self._fail
        self._jobs: dict[str, Callable[[], Any]] = {"poller": self._poll, "saver": self._save}
        self.poller.saver._conn_lock = FiberLock()  # type: ignore[assignment]
        if shape.letters:
            self._jobs["letters"] = self.worker.dead_letters.run_once
        if (transactor := self.poller.transactor) is not None:
            self._jobs["transactor"] = transactor.run_once
            transactor._use_lock = FiberLock()  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self.name

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Killed):
            self.failure = error

    # What the test does.

    @property
    def limitable(self) -> Iterable[str]:
        """The names of handlers that take limits."""
        return self.worker._context.limits.declared_limits

    @property
    def actors(self) -> list[str]:
        return list(self._jobs)

    def subject(self, actor: str) -> Any:
        """What the actor has paused for; None: it is between two jobs."""
        fiber = self._fibers.get(actor)
        if fiber is None or fiber.subject is ENDED or (fiber.subject in (WAITS, WATCHES) and self._wakeups.count):
            return None
        return fiber.subject

    def go_on(self, actor: str, answer: Any = None, *, through: bool = False, between: int | str | None = None) -> Any:
        """Let an actor go on to its next pause, or begin its next job; `through` all statements. The result of a job
        that ends. `between`: as in `Fiber.passes`."""
        Process.acting = self
        fiber = self._fibers.get(actor)
        if fiber is not None and fiber.subject is WAITS and not self._wakeups.count:
            return None
        if fiber is None:
            fiber = self._fibers[actor] = Fiber(self._jobs[actor], looks=actor not in ("poller", "saver"))
        fiber.passes = between
        subject = fiber.go_on(answer)
        while through and isinstance(subject, Sent):
            subject = fiber.go_on()
        if fiber.ended:
            del self._fibers[actor]
            if fiber.error is not None and not isinstance(fiber.error, Killed):
                raise fiber.error
        self.pump()
        return fiber.result if fiber.ended else None

    def finish_steps(self) -> None:
        """Nobody is between two steps any more."""
        for actor in list(self._fibers):
            while isinstance(subject := self.subject(actor), Between) and subject not in RESTING:
                self.go_on(actor)

    def handling(self) -> list[tuple[Any, Handling]]:
        """The handlers that run, each with what `finish` takes."""
        sync = [(name, fiber.subject) for name, fiber in self._fibers.items() if isinstance(fiber.subject, Handling)]
        return [*sync, *self._handling.items()]

    def finish(self, where: Any, outcomes: list[object], *, between: int | str | None = None) -> None:
        """A handler ends, with an outcome for each of its events."""
        if isinstance(where, str):
            self.go_on(where, outcomes, between=between)
        else:
            Process.acting = self
            self._handling.pop(where)
            where.set_result(outcomes)
            self.pump()

    def pump(self) -> None:
        """Let the loop of the async handlers go on until each of them waits."""
        for _ in range(STEPS):
            loop: Any = self._loop
            if not loop._ready and not (loop._scheduled and loop._scheduled[0].when() <= loop.time()):
                break
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
        else:
            raise AssertionError("the event loop does not come to rest")
        if self.failure is not None:
            raise self.failure

    def kill(self) -> None:
        """Nothing of it goes on: what was in memory is gone."""
        Process.acting = self
        self.dead = True
        self.poller.ownership.drop_tenures([each.tenure for each in self.engine.claims.list_tenures()])
        self.engine.scheduler.stop()
        for fiber in list(self._fibers.values()):
            fiber.passes = None
            while not fiber.ended:
                assert fiber.subject is not WAITS or self._wakeups.count, "a runner does not hear that it is over"
                fiber.go_on(Fate.LOST if isinstance(fiber.subject, Sent) else None)
        self._fibers.clear()
        self._loop.run_until_complete(self._async._cancel_tasks(0.0))
        self._handling.clear()

    def lose_connection(self) -> None:
        """Its connections are gone, which their next statements find out."""
        if self._session is not None:
            for conn in (self._session.reading, self._session.saving, self._session.effects):
                if conn is not None:
                    conn.close()

    def trust(self, *, ends: bool = False) -> None:
        """The lease is renewed for good; or it `ends` now."""
        self.slot.trust_until(*(-inf, -inf) if ends else (inf, inf))

    @property
    def trusted(self) -> bool:
        return self.slot[DEADLINE] == inf

    def rename(self, me: UUID) -> None:
        """The supervisor gives it another identity."""
        self.me = self.slot.instance = me
        self.trust()

    def stop(self) -> None:
        """It is to release everything."""
        self.slot[STOPPING] = 1.0

    @property
    def stopping(self) -> bool:
        return self.slot[STOPPING] == 1.0

    @property
    def rests(self) -> float:
        """Seconds that the runner which watches rests before it looks."""
        return self._wakeups.timeout

    @property
    def is_free(self) -> bool:
        """True if it owns nothing, and nothing of it runs."""
        idle = all(fiber.subject in RESTING for fiber in self._fibers.values())
        return idle and not self.engine.partitions and not self._handling

    # The actors.

    def _poll(self) -> bool:
        """A session begins, or a look; True if anything new came."""
        poller = self.poller
        if self._session is not None and poller.restart_asked.is_set():
            self._end_session()
        begins = self._session is None
        try:
            if begins:
                self.claims += 1
                self._session = self._connect()
                poller.begin_session(self._session, checked=True)
                return True
            return poller.run_step(self._session)
        except Error as error:
            if begins or self._session.reading.closed or proof.ends_session(error):
                self._end_session()
            return False

    def _connect(self) -> Any:
        connection = self.watcher.connection
        effects = connection(self) if self.poller.transactor is not None else None
        session = SimpleNamespace(reading=connection(self), saving=connection(self), effects=effects)
        session.begin_incarnation = lambda _: None
        return session

    def _end_session(self) -> None:
        session, self._session = self._session, None
        self.poller._pause_writers()
        session.reading.close()
        session.saving.close()
        if self.poller.transactor is not None:
            self.poller.transactor.close(session.effects)

    def _save(self) -> float | None:
        """A turn of the saver's thread; the seconds that it rests, if it has looked."""
        saver = self.poller.saver
        saver._advance_idle(self._database.clock.now)
        return saver._save_once() if saver._has_progress.is_set() else None

    def _hire(self, run: Callable[[], None]) -> None:
        self._jobs[f"runner {len(self._jobs)}"] = run

    def _wait_for_lanes(self, ask: Callable[..., list[Lane]], ended: list[Lane], tally: Any) -> list[Lane]:
        """The next lanes. A runner that does not pause between steps ends its lanes and has done for now, first."""
        fiber = Fiber.running
        if ended and fiber is not None and fiber.passes is None:
            self.engine.scheduler.end_lanes(ended)
            pause(ENDED)
            ended = []
        return ask(ended, tally)

    def take(self, waiting: Any) -> None:
        """A runner takes this from the head of a lane, or another takes it for one."""
        record = waiting if isinstance(waiting, tuple) else waiting.record
        owned = self.engine.partitions.get(record[PARTITION])
        if owned is not None:
            waiting = (row.id for row in owned.parked.list_blocking() if not row.is_loaded)
            self._taken[id(record)] = Taken(record, owned.epoch, self._database.replayed.intersection(waiting))

    def check_turn(self, event: DeliveredEvent) -> None:
        """What a runner has taken begins under the epoch of that moment. What is replayed, and known to be by then,
        begins before it (DESIGN 7)."""
        taken, owned = self._taken[id(event.record)], self.engine.partitions.get(event.partition)
        assert event.epoch == taken.epoch, f"{event.id} begins under epoch {event.epoch}, not {taken.epoch}"
        chain = None if owned is None else owned.parked.chains.get(key_of(event))
        ahead = [] if chain is None else [row.id for row in chain.iter_before(event.id) if row.id in taken.replayed]
        assert not ahead, f"{event.id} begins before {ahead} of its key"


def _worker(handlers: Handlers, slot: Slot, shape: Shape) -> Worker:
    settings = load(
        dsn="postgresql://nowhere", page=shape.page, window=shape.window, window_bytes=shape.window_bytes,
        max_parked=shape.max_parked, max_waiting=shape.max_waiting, spill_after=shape.spill_after,
        max_attempts=shape.max_attempts, on_dead=shape.on_dead, handler_timeout=None, retry=Fixed(AGAIN),
        bell="off", circuit="ValueError" if shape.circuit_by else "off",
    )  # fmt: skip
    return Worker(
        settings, handlers, Codecs(), slot, subscription="default", concurrency=shape.concurrency, dsn=lambda: "",
        is_replaceable=False,
    )  # fmt: skip


@contextmanager
def _at_once(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """The next page arrives, or fails to, before the last is handed over; that it failed is told after that."""
    future: Future[Any] = Future()
    try:
        future.set_result(call())
    except Error as error:
        future.set_exception(error)
    yield future


def install(patch: pytest.MonkeyPatch) -> None:
    """No thread of a process goes on by itself, and none waits."""
    patch.setattr(lock_check, "HeldLock", FiberLock)  # the one of the engine
    patch.setattr(partition, "deque", LaneQueue)
    patch.setattr(LaneQueue, "taken", staticmethod(lambda waiting: Process.acting.take(waiting)))
    patch.setattr(full_poll, "prefetch", _at_once)
    patch.setattr(transactor, "RETRY_DELAY", 0.0)
