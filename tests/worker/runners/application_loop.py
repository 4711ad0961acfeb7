"""What tests of handlers in the application's loop have in common."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from desk import Desk
from event_loops import LIBRARIES
from waiting import eventually

from partbox.worker.runners.loop_hosts import find_loop_factory

Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def happens(check: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(eventually, check)


def instances(desk: Desk) -> int:
    row = desk.conn.execute("select count(*) from partbox.instance").fetchone()
    assert row is not None
    return int(row[0])


def owned(desk: Desk) -> int:
    row = desk.conn.execute("select count(owner) from partbox.partition").fetchone()
    assert row is not None
    return int(row[0])


def attempts(desk: Desk) -> list[tuple[int, int]]:
    return [(number, attempt) for _, number, attempt in desk.seen]


class Waits:
    """An async handler that waits until it may go on, or is cancelled."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.begun, self.cancelled, self.go_on = threading.Event(), threading.Event(), threading.Event()
        desk.outbox.on("Counted")(self.handle)

    async def handle(self, event: Any) -> None:
        self.begun.set()
        try:
            while not self.go_on.is_set():
                await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        self._desk.note(event)


@pytest.fixture
def waits(desk: Desk) -> Waits:
    desk.publish("k", 1)
    return Waits(desk)


@pytest.fixture(params=LIBRARIES)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an application in a loop of this library."""

    def run(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=find_loop_factory(request.param), debug=True) as runner:
            return runner.run(main)

    return run


async def delivered(desk: Desk) -> None:
    """Deliver all in a loop."""
    async with desk.outbox.worker():
        await happens(desk.all_done)
