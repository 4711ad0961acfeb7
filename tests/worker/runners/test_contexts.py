"""Each event runs in a context of its own: no other sees the context variables that it sets."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from psycopg import AsyncConnection, Connection
from sqlalchemy import event as events
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from partbox import DeliveredEvent

ENTERED = ContextVar("ENTERED", default="nobody")
OF_EVENT = ContextVar("OF_EVENT", default="nobody")
OF_INTERCEPTOR = ContextVar("OF_INTERCEPTOR", default="nobody")
NUMBER = 40


class Handlers:
    """Handlers that note the variables which they find, and set them. `between`: a handler finds its own again."""

    def __init__(self) -> None:
        self.found: set[tuple[str, str]] = set()
        self.hooks: list[tuple[int, str]] = []
        self.ran = 0

    def _mark(self, given: Any) -> str:
        self.found.add((ENTERED.get(), OF_EVENT.get()))
        first = given[0] if isinstance(given, list) else given
        mark = str(first.payload["number"])
        assert OF_INTERCEPTOR.get() in (mark, "nobody")
        OF_EVENT.set(mark)
        self.ran += len(given) if isinstance(given, list) else 1
        return mark

    async def _wait(self, mark: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert OF_EVENT.get() == mark
            assert await asyncio.create_task(self._own_task()) == mark

    async def _own_task(self) -> str:
        return OF_EVENT.get()

    def sync(self, event: DeliveredEvent) -> None:
        self._mark(event)

    async def asynchronous(self, event: DeliveredEvent) -> None:
        await self._wait(self._mark(event))

    async def never_waits(self, event: DeliveredEvent) -> None:
        self._mark(event)

    async def limited(self, event: DeliveredEvent) -> None:
        await self._wait(self._mark(event))

    def lists(self, events: list[DeliveredEvent]) -> None:
        self._mark(events)

    async def async_lists(self, events: list[DeliveredEvent]) -> None:
        await self._wait(self._mark(events))

    def psycopg(self, event: DeliveredEvent, conn: Connection[Any]) -> None:
        self._mark(event)

    async def async_psycopg(self, event: DeliveredEvent, conn: AsyncConnection[Any]) -> None:
        await self._wait(self._mark(event))

    def sqlalchemy(self, event: DeliveredEvent, session: Session) -> None:
        mark = int(self._mark(event))
        events.listen(session, "after_commit", lambda _: self.hooks.append((mark, OF_EVENT.get())))

    async def async_sqlalchemy(self, event: DeliveredEvent, session: AsyncSession) -> None:
        mark = int(self._mark(event))
        events.listen(session.sync_session, "after_commit", lambda _: self.hooks.append((mark, OF_EVENT.get())))
        await self._wait(str(mark))


OPTIONS: dict[str, dict[str, Any]] = {
    "limited": {"at_once": 3},
    "psycopg": {"transactional": True},
    "async_psycopg": {"transactional": True},
    "sqlalchemy": {"transactional": "sqlalchemy"},
    "async_sqlalchemy": {"transactional": "sqlalchemy"},
}
SHAPES = ["sync", "asynchronous", "never_waits", "limited", "lists", "async_lists", *list(OPTIONS)[1:]]


@contextmanager
def marking(given: Any) -> Iterator[None]:
    """An interceptor that leaves its variable behind."""
    assert OF_INTERCEPTOR.get() == "nobody"
    OF_INTERCEPTOR.set(str(given.payload["number"]))
    yield
    assert OF_INTERCEPTOR.get() == str(given.payload["number"])


@pytest.mark.parametrize("shape", SHAPES)
def test_no_event_sees_context_variables_of_another_and_all_see_those_set_at_the_start(desk: Any, shape: str) -> None:
    handlers = Handlers()
    if "lists" in shape:
        desk.outbox.on_batch("Counted", max_size=7)(getattr(handlers, shape))
    else:
        desk.outbox.intercept(marking)
        desk.outbox.register(getattr(handlers, shape), "Counted", **OPTIONS.get(shape, {}))
    for key in "abcd":
        desk.publish(key, *range(NUMBER))
    entered = ENTERED.set("me")
    try:
        with desk.outbox.worker(concurrency=2):
            desk.eventually(desk.all_done)
    finally:
        ENTERED.reset(entered)
    assert handlers.ran == 4 * NUMBER
    assert handlers.found == {("me", "nobody")}
    assert desk.parked() == []
    assert OF_EVENT.get() == "nobody"
    if "sqlalchemy" in shape:
        assert len(handlers.hooks) == 4 * NUMBER
        assert all(found == str(mark) for mark, found in handlers.hooks), "a hook runs in the context of its event"


async def test_in_the_applications_loop_each_event_has_its_own_copy_of_the_applications_context(desk: Any) -> None:
    handlers = Handlers()
    desk.outbox.register(handlers.asynchronous, "Counted")
    desk.publish("k", *range(NUMBER))
    ENTERED.set("the application")
    async with desk.outbox.worker():
        while not desk.all_done():
            await asyncio.sleep(0.01)
    assert handlers.found == {("the application", "nobody")}
    assert OF_EVENT.get() == "nobody"


def test_a_drain_gives_each_event_a_copy_of_the_callers_context(desk: Any) -> None:
    handlers = Handlers()
    desk.outbox.register(handlers.sync, "Counted")
    desk.publish("k", 1, 2, 3)
    ENTERED.set("a test")
    assert desk.drain().states == ["done"] * 3
    assert handlers.found == {("a test", "nobody")}
    assert OF_EVENT.get() == "nobody"
