"""A stop never counts an attempt, whatever runs when the drain timeout is over; a death that is no stop does."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk
from planted_records import Planter
from waiting import eventually

from partbox.supervisor.embedded import EmbeddedWorker
from partbox.worker.runners import transactor
from partbox.worker.runners.dispatcher import Dispatcher
from partbox.worker.slot import STOPPING

KINDS = ["sync", "async", "list", "async list", "transactional"]
SUSPECT = "update partbox.partition set suspect_until_id = (select max(id) from partbox.record)"


class Long:
    """A handler of any kind that outlives each stop until it is let go, and the attempts that it was called with."""

    def __init__(self, desk: Desk, kind: str, event_type: str = "Counted") -> None:
        self.attempts: list[int] = []
        self.gone_on = threading.Event()
        register: dict[str, Callable[[], Any]] = {
            "sync": lambda: desk.outbox.on(event_type)(self._wait),
            "async": lambda: desk.outbox.on(event_type)(self._sleep),
            "list": lambda: desk.outbox.on_batch(event_type)(self._wait_list),
            "async list": lambda: desk.outbox.on_batch(event_type)(self._sleep_list),
            "transactional": lambda: desk.outbox.on(event_type, transactional=True)(self._transact),
        }
        register[kind]()

    def _wait(self, event: Any) -> None:
        self.attempts.append(event.attempt)
        self.gone_on.wait(120)

    async def _sleep(self, event: Any) -> None:
        self.attempts.append(event.attempt)
        while not self.gone_on.is_set():
            await asyncio.sleep(0.01)

    def _wait_list(self, events: Any) -> None:
        self._wait(events[0])

    async def _sleep_list(self, events: Any) -> None:
        await self._sleep(events[0])

    def _transact(self, event: Any, connection: Any) -> None:
        self._wait(event)


def run_through(desk: Desk, handlers: list[Long], stops: int) -> None:
    """Start a worker, wait until each handler runs and stop it, so often."""
    for _ in range(stops):
        before = [len(handler.attempts) for handler in handlers]
        with desk.outbox.worker(concurrency=len(handlers) + 1):
            for handler, calls in zip(handlers, before, strict=True):
                eventually(lambda handler=handler, calls=calls: len(handler.attempts) > calls)


@pytest.fixture(autouse=True)
def _nobody_waited_for(monkeypatch):
    """No transactional handler of these tests can be cancelled: none ends for being waited for."""
    monkeypatch.setattr(transactor, "CANCEL_GRACE", 0.05)


@pytest.fixture
def let_go():
    """Lets a handler end with the test."""
    made = []
    yield lambda handler: made.append(handler) or handler
    for handler in made:
        handler.gone_on.set()


@pytest.fixture
def long(desk_with, let_go):
    def make(kind: str, **settings: Any) -> tuple[Desk, Long]:
        desk = desk_with(**{"drain_timeout": 0.1, "max_attempts": 2, "retry": "fixed:0.01"} | settings)
        return desk, let_go(Long(desk, kind))

    return make


@pytest.mark.parametrize("key", ["k", None])
def test_no_stop_counts_an_attempt_however_often_the_handler_outlives_it(desk_with, let_go, key):
    """One handler of each kind, all in the same worker."""
    desk = desk_with(drain_timeout=0.1, max_attempts=2, retry="fixed:0.01")
    handlers = {kind: let_go(Long(desk, kind, kind)) for kind in KINDS}
    for number, kind in enumerate(KINDS):
        desk.publish(key and f"{key} of {kind}", number, event_type=kind)
    with_one = {kind: {1} for kind in KINDS}
    run_through(desk, list(handlers.values()), 3)
    assert {kind: set(handler.attempts) for kind, handler in handlers.items()} == with_one
    for handler in handlers.values():
        handler.gone_on.set()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert {kind: set(handler.attempts) for kind, handler in handlers.items()} == with_one


def test_no_stop_counts_an_attempt_of_an_event_that_was_parked_before(desk_with, let_go):
    desk = desk_with(drain_timeout=0.1, max_attempts=3, retry="fixed:0.01")
    planter = Planter(desk.conn)
    handlers = {}
    for how, key in (("retrying", "k"), ("held", "l"), ("retrying", None)):
        due, event_type = 0 if how == "retrying" else None, f"{how} {key}"
        handlers[event_type] = let_go(Long(desk, "sync", event_type))
        planter.park(
            key, how, blocks=key is not None, attempts=1, due=due, event_type=event_type, payload={"number": 1}
        )
    run_through(desk, list(handlers.values()), 3)
    with_two = {which: {2} for which in handlers}
    assert {which: set(handler.attempts) for which, handler in handlers.items()} == with_two
    for handler in handlers.values():
        handler.gone_on.set()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert {which: set(handler.attempts) for which, handler in handlers.items()} == with_two


def test_no_stop_counts_an_attempt_of_a_suspect_that_a_dead_process_left(desk_with, let_go):
    desk = desk_with(drain_timeout=0.1, max_attempts=3, retry="fixed:0.01")
    handlers = [let_go(Long(desk, "sync", event_type)) for event_type in ("Keyed", "Unkeyed")]
    desk.publish("k", 1, event_type="Keyed")
    desk.publish(None, 2, event_type="Unkeyed")
    desk.conn.execute(SUSPECT)
    run_through(desk, handlers, 2)
    assert [set(handler.attempts) for handler in handlers] == [{1}, {1}]
    for handler in handlers:
        handler.gone_on.set()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert [set(handler.attempts) for handler in handlers] == [{1}, {1}]


def test_a_stop_takes_back_its_own_charge_and_keeps_the_attempts_of_earlier_deaths(long):
    """A stop takes back what its own process charged: the deaths before it keep their attempts."""
    desk, handler = long("sync", max_attempts=5)
    planter = Planter(desk.conn)
    planter.park("k", "ready", blocks=True, attempts=2, started=True, event_type="Counted", payload={"number": 1})
    run_through(desk, [handler], 2)
    assert handler.attempts == [3, 3]
    assert desk.parked() == [(1, "ready", 2, True)]


def test_a_worker_whose_membership_is_gone_marks_itself_as_draining_when_it_is_stopped(long, monkeypatch):
    """As the children of a supervisor that died."""
    monkeypatch.setattr(EmbeddedWorker, "_run_heartbeat", lambda self: None)
    desk, handler = long("sync")
    desk.publish("k", 1)
    with desk.outbox.worker() as worker:
        eventually(lambda: handler.attempts)
        worker._slot[STOPPING] = 1.0
        eventually(lambda: desk.conn.execute("select draining from partbox.instance").fetchall() == [(True,)])


@pytest.mark.parametrize("ends", ["raises", "swallows"])
def test_an_async_handler_that_a_stop_cancels_may_raise_or_return_without_a_counted_attempt(
    desk_with, monkeypatch, ends
):
    """Drivers turn a cancelling into errors of their own. What there is to save then is saved before the end."""
    join = Dispatcher.join

    def joined(self, until):
        ended = join(self, until)
        eventually(lambda: not self._engine.dirty_partitions)
        return ended

    monkeypatch.setattr(Dispatcher, "join", joined)
    desk = desk_with(drain_timeout=0.1, max_attempts=2, retry="fixed:0.01")
    attempts, let_go = [], threading.Event()

    async def handle(event):
        attempts.append(event.attempt)
        try:
            while not let_go.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            if ends == "raises":
                raise ConnectionError("interrupted") from None

    desk.outbox.on("Counted")(handle)
    desk.publish("k", 1)
    desk.publish(None, 2)
    for _ in range(2):
        before = len(attempts)
        with desk.outbox.worker() as worker:
            eventually(lambda before=before: len(attempts) >= before + 2 or desk.all_done())
        assert worker._worker.failure is None
    let_go.set()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert set(attempts) == {1}
