"""A stop never counts an attempt, whatever runs when the drain timeout is over; a death that is no stop does."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk
from planting import Planter
from waiting import eventually

from partbox.supervisor.embedded import EmbeddedWorker
from partbox.worker.dispatcher import Dispatcher
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

    def ran_through(self, desk: Desk, stops: int) -> None:
        """Start a worker, wait for the handler and stop it, so often."""
        for _ in range(stops):
            before = len(self.attempts)
            with desk.outbox.worker(concurrency=2):
                eventually(lambda before=before: len(self.attempts) > before)

    def _wait(self, event: Any) -> None:
        self.attempts.append(event.attempt)
        self.gone_on.wait(60)

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


@pytest.fixture
def long(request, desk_with):
    made = []

    def make(kind: str, **settings: Any) -> tuple[Desk, Long]:
        desk = desk_with(**{"drain_timeout": 0.1, "max_attempts": 2, "retry": "fixed:0.01"} | settings)
        made.append(Long(desk, kind))
        return desk, made[-1]

    yield make
    for handler in made:
        handler.gone_on.set()


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("kind", KINDS)
def test_no_stop_counts_an_attempt_however_often_the_handler_outlives_it(long, kind, key):
    desk, handler = long(kind)
    desk.publish(key, 1)
    handler.ran_through(desk, 3)
    assert set(handler.attempts) == {1}
    handler.gone_on.set()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert set(handler.attempts) == {1}


@pytest.mark.parametrize(
    ("how", "key"), [("retrying", "k"), ("held", "k"), ("suspect", "k"), ("retrying", None), ("suspect", None)]
)
def test_nor_one_of_what_was_parked_before(long, how, key):
    desk, handler = long("sync", max_attempts=3)
    planter = Planter(desk.conn)
    if how == "suspect":
        desk.publish(key, 1)
        desk.conn.execute(SUSPECT)
    else:
        due = 0 if how == "retrying" else None
        planter.park(key, how, blocks=key is not None, attempts=1, due=due, event_type="Counted", payload={"number": 1})
    handler.ran_through(desk, 3)
    assert set(handler.attempts) == {1 if how == "suspect" else 2}
    handler.gone_on.set()
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert len(set(handler.attempts)) == 1


def test_what_ran_when_a_charged_one_was_stopped_is_charged_again_after_a_death(long):
    """A stop takes back what its own process charged: the deaths before it keep their attempts."""
    desk, handler = long("sync", max_attempts=5)
    planter = Planter(desk.conn)
    planter.park("k", "ready", blocks=True, attempts=2, started=True, event_type="Counted", payload={"number": 1})
    handler.ran_through(desk, 2)
    assert handler.attempts == [3, 3]
    assert desk.parked() == [(1, "ready", 2, True)]


def test_a_worker_whose_membership_is_gone_says_itself_that_it_was_told_to_end(long, monkeypatch):
    """As the children of a supervisor that died."""
    monkeypatch.setattr(EmbeddedWorker, "_beat", lambda self: None)
    desk, handler = long("sync")
    desk.publish("k", 1)
    with desk.outbox.worker() as worker:
        eventually(lambda: handler.attempts)
        worker._slot[STOPPING] = 1.0
        eventually(lambda: desk.conn.execute("select draining from partbox.instance").fetchall() == [(True,)])


@pytest.mark.parametrize("ends", ["raises", "swallows"])
def test_what_an_async_handler_makes_of_being_cancelled_by_a_stop_is_no_failure_of_it(desk_with, monkeypatch, ends):
    """Drivers turn a cancelling into errors of their own. What there is to save then is saved before the end."""
    join = Dispatcher.join

    def joined(self, until):
        ended = join(self, until)
        eventually(lambda: not self._holdings.dirty)
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
