"""One worker process of the parts that ship, without their threads: each of these goes on when the test says so.

The parts are made and wired by `Worker`, which is never started. What its threads do in turn is done here by fibers:
the poller's sessions and looks, saves, transactions, turns of runners; async handlers run in a loop that is stepped.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import pytest
from fibers import Fiber, pause
from psycopg import Error
from statements import Fate, ModelConnection, Sent

from partbox.codecs import Codecs
from partbox.db.delivery import proof
from partbox.events import DeliveredEvent
from partbox.handlers import Handlers
from partbox.protocol.retry import Fixed
from partbox.settings import load
from partbox.worker.engine.runs import Rest
from partbox.worker.poller import full_poll
from partbox.worker.runners import transactor
from partbox.worker.runners.event_loop import EventLoop
from partbox.worker.slot import DEADLINE, STOPPING, Slot
from partbox.worker.worker import Worker

MOST_ATTEMPTS = 3
AGAIN = 1.0  # seconds until what has failed is tried again
LIST = 3  # events of a list at most
PENDING = object()
"""In the place of an outcome: it is done, if its transaction is committed."""
STILL = Sent("hold still")
"""The poller is about to wait for the save in hand, and for a transaction that is about to commit."""
STEPS = 100  # of a loop, until nothing is ready in it


class Killed(BaseException):
    """The process of this fiber is dead."""


class Handling(NamedTuple):
    """A handler runs; it ends with what its fiber, or its future, is told: one outcome for each event."""

    events: list[DeliveredEvent]


class Watcher(Protocol):
    """Who hears what handlers of a process do."""

    def begins(self, process: "Process", event: DeliveredEvent, before: Sequence[DeliveredEvent] = ()) -> None: ...
    def ends(self, process: "Process", event: DeliveredEvent, outcome: object) -> None: ...
    def connection(self, process: "Process") -> ModelConnection: ...


class Shape(NamedTuple):
    """The handlers of a process, by the kinds of events that they take, and the settings that bound it."""

    concurrency: int = 2
    kind: str = "sync"  # sync | async | lists | async lists | effects | mixed
    page: int = 30
    window: int = 8
    window_bytes: int = 1 << 20
    max_parked: int = 6
    max_attempts: int = MOST_ATTEMPTS


class _SteppedLoop(EventLoop):
    """The loop of async handlers; what waits in it goes on when the test lets it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop

    def start(self, walk: Callable[[], Any]) -> None:
        self._begin(walk)


class Process:
    """Its actors are called by name: `poller`, `saver`, `transactor`, `runner 0` and so on."""

    def __init__(self, watcher: Watcher, me: UUID, name: str, shape: Shape, loop: asyncio.AbstractEventLoop) -> None:
        self.watcher, self.me, self.name, self.shape = watcher, me, name, shape
        self.dead = False
        self.claims = 0  # sessions begun: with each all is read anew
        self.running: dict[int, UUID] = {}  # by the number of an event, under which identity its handler began
        self.failure: BaseException | None = None
        self._loop = loop
        self._handling: dict[asyncio.Future[list[object]], Handling] = {}
        self._fibers: dict[str, Fiber] = {}
        self._session: Any = None
        self.slot = Slot.local()
        self.slot.instance = me
        self.trust()
        self.worker = _worker(self._handlers(), self.slot, shape)
        self.poller, self.engine = self.worker.poller, self.worker.engine
        dispatcher: Any = self.worker.dispatcher
        self._async = dispatcher._loop = _SteppedLoop(loop)
        self._dispatcher = dispatcher
        self.worker._context.signals.failed = self._fail
        self._jobs: dict[str, Callable[[], Any]] = {"poller": self._poll, "saver": self._save}
        if self.poller.transactor is not None:
            self._jobs["transactor"] = self.poller.transactor.once
        for number in range(shape.concurrency):
            self._jobs[f"runner {number}"] = self._turn

    def __repr__(self) -> str:
        return self.name

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Killed):
            self.failure = error

    # What the test does.

    @property
    def actors(self) -> list[str]:
        return list(self._jobs)

    def subject(self, actor: str) -> Any:
        """What the actor has paused for; None: it is between two jobs."""
        fiber = self._fibers.get(actor)
        return None if fiber is None else fiber.subject

    def go_on(self, actor: str, answer: Any = None, *, through: bool = False) -> Any:
        """Let an actor go on to its next pause, or begin its next job; `through` all statements. The result of a job
        that ends."""
        fiber = self._fibers.get(actor)
        if fiber is None:
            fiber = self._fibers[actor] = Fiber(self._jobs[actor])
        subject = self._one_step(fiber, answer)
        while through and isinstance(subject, Sent):
            subject = self._one_step(fiber)
        if fiber.ended:
            del self._fibers[actor]
            if fiber.error is not None and not isinstance(fiber.error, Killed):
                raise fiber.error
        self.pump()
        return fiber.result if fiber.ended else None

    def handling(self) -> list[tuple[Any, Handling]]:
        """The handlers that run, each with what `finish` takes."""
        sync = [(name, fiber.subject) for name, fiber in self._fibers.items() if isinstance(fiber.subject, Handling)]
        return [*sync, *self._handling.items()]

    def finish(self, where: Any, outcomes: list[object]) -> None:
        """A handler ends, with an outcome for each of its events."""
        if isinstance(where, str):
            self.go_on(where, outcomes)
        else:
            self._handling.pop(where)
            where.set_result(outcomes)
            self.pump()

    def pump(self) -> None:
        """Let the loop of the async handlers go on until each of them waits."""
        for _ in range(STEPS):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
            if not self._loop._ready:  # type: ignore[attr-defined]
                break
        else:
            raise AssertionError("the event loop does not come to rest")
        if self.failure is not None:
            raise self.failure

    def kill(self) -> None:
        """Nothing of it goes on: what was in memory is gone."""
        self.dead = True
        self.poller.ownership.lose(list(self.engine.partitions.values()))
        for actor in sorted(self._fibers, key=lambda name: name == "poller"):  # it waits for the others
            fiber = self._fibers[actor]
            while not fiber.ended:
                fiber.go_on(Fate.LOST if isinstance(fiber.subject, Sent) else None)
        self._fibers.clear()
        self._loop.run_until_complete(self._async._cancel(()))
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
    def is_free(self) -> bool:
        """True if it owns nothing, and nothing of it runs."""
        return not self.engine.partitions and not self._fibers and not self._handling

    # The actors.

    def _one_step(self, fiber: Fiber, answer: Any = None) -> Any:
        if fiber.subject is STILL:
            for other in ("saver", "transactor"):
                while isinstance(self.subject(other), Sent):
                    self.go_on(other)
        return fiber.go_on(answer)

    def _poll(self) -> bool:
        """A session begins, or a look; True if anything new came."""
        poller = self.poller
        if self._session is not None and poller.broken.is_set():
            self._end_session()
        if self._session is not None and poller.ownership.outdated:
            pause(STILL)
        begins = self._session is None
        try:
            if begins:
                self.claims += 1
                self._session = self._connect()
                poller.begin(self._session, checked=True)
                return True
            return poller.look(self._session)
        except Error as error:
            if begins or self._session.reading.closed or proof.ends_session(error):
                self._end_session()
            return False

    def _connect(self) -> Any:
        connection = self.watcher.connection
        effects = connection(self) if self.poller.transactor is not None else None
        session = SimpleNamespace(reading=connection(self), saving=connection(self), effects=effects)
        session.live = lambda _: None
        return session

    def _end_session(self) -> None:
        session, self._session = self._session, None
        pause(STILL)
        self.poller._hold_still()
        session.reading.close()
        session.saving.close()
        if self.poller.transactor is not None:
            self.poller.transactor.close(session.effects)

    def _save(self) -> float | None:
        """A turn of the saver's thread; the seconds that it rests, if it has looked."""
        saver = self.poller.saver
        saver._note_idle_advances(self.watcher.connection(self).database.clock.now)
        return saver._save_once() if saver._progressed.is_set() else None

    def _turn(self) -> bool:
        """A turn of a runner; False if there was nothing to do."""
        dispatcher, runs = self._dispatcher, self.engine.runs
        now = self.watcher.connection(self).database.clock.now
        lanes = runs.next([], now, trusted=dispatcher._runner.trusted(), waits=False)
        if isinstance(lanes, Rest):
            return False
        runs.end(dispatcher.turn(lanes))
        return True

    # Its handlers.

    def _handlers(self) -> Handlers:
        handlers, shape = Handlers(), self.shape
        kinds = {"mixed": ("sync", "async", "lists", "effects")}.get(shape.kind, (shape.kind,))
        for number, kind in enumerate(kinds):
            name = "*" if number == 0 else f"Type {number}"
            if "lists" in kind:
                handlers.on_batch(name, max_size=LIST)(self._handle_async if "async" in kind else self._handle)
            elif kind == "async":
                handlers.on(name)(self._handle_async)
            elif kind == "effects":
                handlers.on(name, transactional=True)(self._handle_effect)
            else:
                handlers.on(name)(self._handle)
        return handlers

    def _begin(self, given: Any, in_hand: Sequence[DeliveredEvent] = ()) -> Handling:
        events = given if isinstance(given, list) else [given]
        if self.dead:
            raise Killed
        for at, event in enumerate(events):
            try:
                self.watcher.begins(self, event, [*in_hand, *events[:at]])
            except AssertionError as error:  # which would be taken for the handler's own
                self.failure = self.failure or error
                raise
        return Handling(events)

    def _end(self, handling: Handling, outcomes: list[object] | None, given: Any) -> Any:
        if self.dead or outcomes is None:
            raise Killed
        for event, outcome in zip(handling.events, outcomes, strict=True):
            self.watcher.ends(self, event, outcome)
        if isinstance(given, list):
            return outcomes
        if isinstance(outcomes[0], BaseException):
            raise outcomes[0]
        return None if outcomes[0] is PENDING else outcomes[0]

    def _handle(self, given: Any) -> Any:
        handling = self._begin(given)
        return self._end(handling, pause(handling), given)

    async def _handle_async(self, given: Any) -> Any:
        handling = self._begin(given)
        future: asyncio.Future[list[object]] = self._loop.create_future()
        self._handling[future] = handling
        return self._end(handling, await future, given)

    def _handle_effect(self, event: DeliveredEvent, conn: Any) -> Any:
        """It is done when its transaction is committed, and until then for what follows in that."""
        handling = self._begin(event, conn.in_hand)
        outcomes = pause(handling)
        if outcomes == [None]:
            conn.effect(event)
            outcomes = [PENDING]
        return self._end(handling, outcomes, event)


def _worker(handlers: Handlers, slot: Slot, shape: Shape) -> Worker:
    settings = load(
        dsn="postgresql://nowhere", page=shape.page, window=shape.window, window_bytes=shape.window_bytes,
        max_parked=shape.max_parked, max_attempts=shape.max_attempts, handler_timeout=None, retry=Fixed(AGAIN),
        circuit="off", bell="off",
    )  # fmt: skip
    return Worker(
        settings, handlers, Codecs(), slot, subscription="default", concurrency=shape.concurrency, dsn=lambda: "",
        isolates=False,
    )  # fmt: skip


@contextmanager
def _at_once(call: Callable[[], Any]) -> Iterator[Any]:
    """The next page arrives before the last is handed over."""
    done: asyncio.Future[Any]
    result = call()
    done = SimpleNamespace(result=lambda _: result)  # type: ignore[assignment]
    yield done


def install(patch: pytest.MonkeyPatch) -> None:
    """No thread of a process goes on by itself, and none waits."""
    patch.setattr(full_poll, "prefetch", _at_once)
    patch.setattr(transactor, "RETRY", 0.0)
