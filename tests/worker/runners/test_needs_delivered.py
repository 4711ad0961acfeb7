"""State and dependencies of handlers in a worker: in its transactions, at timeouts, and when a provider fails."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import psycopg
import pytest
from desk import Desk
from effect_table import effects
from fast_depends import Depends
from orm import TABLES
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from partbox import DeliveredEvent

INSERT = "insert into effect (key, number) values ('k', %s)"


class Scale:
    """The state: what a number is multiplied by."""

    factor = 10


@pytest.fixture
def desk(desk_with: Callable[..., Desk]) -> Desk:
    desk = desk_with(retry="fixed:3600", max_attempts=5)
    desk.conn.execute(TABLES)

    @desk.outbox.lifespan
    async def lifespan() -> AsyncIterator[Scale]:
        yield Scale()

    return desk


def scaled(event: DeliveredEvent, state: Scale) -> int:
    return int(event.payload["number"]) * state.factor


class Writer:
    """Of a provider that takes what the transaction is in."""

    def __init__(self, into: Any) -> None:
        self.into = into


def over_connection(conn: psycopg.Connection[Any]) -> Writer:
    return Writer(conn)


def over_session(session: Session) -> Writer:
    return Writer(session)


async def over_connection_async(conn: psycopg.AsyncConnection[Any]) -> Writer:
    return Writer(conn)


async def over_session_async(session: AsyncSession) -> Writer:
    return Writer(session)


Number = Annotated[int, Depends(scaled)]


def raw(event: DeliveredEvent, conn: Any, number: Number, by: Annotated[Writer, Depends(over_connection)]) -> None:
    assert by.into is conn
    conn.execute(INSERT, [number])


def orm(number: Number, by: Annotated[Writer, Depends(over_session)], event: DeliveredEvent, session: Session) -> None:
    assert by.into is session
    session.execute(text("insert into effect (key, number) values ('k', :number)"), {"number": number})


async def raw_async(
    event: DeliveredEvent, number: Number, conn: Any, by: Annotated[Writer, Depends(over_connection_async)]
) -> None:
    assert by.into is conn
    await conn.execute(INSERT, [number])


async def orm_async(
    by: Annotated[Writer, Depends(over_session_async)], state: Scale, event: DeliveredEvent, session: AsyncSession
) -> None:
    assert by.into is session
    number = event.payload["number"] * state.factor
    await session.execute(text("insert into effect (key, number) values ('k', :number)"), {"number": number})


@pytest.mark.parametrize(
    ("handler", "transactional"),
    [(raw, True), (orm, "sqlalchemy"), (raw_async, True), (orm_async, "sqlalchemy")],
    ids=["raw", "sqlalchemy", "raw-async", "sqlalchemy-async"],
)
def test_a_transactional_handler_and_its_providers_share_one_transaction(
    desk: Desk, handler: Any, transactional: Any
) -> None:
    desk.outbox.register(handler, "Counted", transactional=transactional)
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk) == [10, 20, 30]


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_error_of_a_provider_counts_as_the_handlers_and_opened_dependencies_are_closed(
    desk: Desk, is_async: bool
) -> None:
    told: list[str] = []

    def opened() -> Iterator[None]:
        told.append("open")
        yield
        told.append("not reached")

    async def opened_async() -> AsyncIterator[None]:
        told.append("open")
        try:
            yield
        finally:
            told.append("close")

    def failing() -> None:
        raise LookupError("no connection")

    def handler(
        event: DeliveredEvent, first: Annotated[None, Depends(opened)], second: Annotated[None, Depends(failing)]
    ) -> None:
        told.append("handled")

    async def handler_async(
        event: DeliveredEvent, first: Annotated[None, Depends(opened_async)], second: Annotated[None, Depends(failing)]
    ) -> None:
        told.append("handled")

    desk.outbox.register(handler_async if is_async else handler, "Counted")
    desk.publish("k", 1)
    assert desk.outbox.drain() is False, "its next attempt is in an hour"
    assert told == (["open", "close"] if is_async else ["open"])
    assert desk.parked() == [(1, "retrying", 1, True)]
    (said,) = desk.conn.execute("select last_error from partbox.parked").fetchone() or ()
    assert said == "LookupError: no connection"


def test_a_handler_that_is_over_its_timeout_has_its_dependencies_closed(desk: Desk) -> None:
    told: list[str] = []

    async def opened() -> AsyncIterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            told.append("cancelled")
            raise
        finally:
            told.append("close")

    @desk.outbox.on("Counted", timeout=0.05)
    async def handler(event: DeliveredEvent, _: Annotated[None, Depends(opened)]) -> None:
        await asyncio.get_running_loop().create_future()

    desk.publish("k", 1)
    assert desk.outbox.drain() is False, "its next attempt is in an hour"
    assert told == ["cancelled", "close"]
    assert desk.parked() == [(1, "retrying", 1, True)]


def test_the_dead_letter_hook_sees_the_state(desk: Desk) -> None:
    states: list[Any] = []

    @desk.outbox.on("Counted", max_attempts=1)
    def handler(event: DeliveredEvent) -> None:
        raise LookupError

    @desk.outbox.on_dead_letter
    def hook(event: DeliveredEvent) -> None:
        states.append(type(event.state))

    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: states == [Scale])


def test_ctrl_c_while_a_sync_lifespan_is_entered_leaves_it_as_soon_as_that_is_done(
    desk_with: Callable[..., Desk],
) -> None:
    desk, pressed, left = desk_with(), threading.Event(), threading.Event()

    @desk.outbox.lifespan
    def lifespan() -> Iterator[None]:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert pressed.wait(60)
        yield
        left.set()

    desk.outbox.register(desk.note, "Counted")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have its jobs ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            desk.outbox.drain()
    finally:
        signal.signal(signal.SIGINT, before)
    pressed.set()
    assert left.wait(60)
