"""The lifespan of a worker in this process: entered before its first handler, left after its last, where that runs."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from desk import Desk
from fast_depends import Depends
from psycopg import Connection

from partbox import DeliveredEvent, Outbox
from partbox.testing import Kit
from partbox.worker.runners import process_lifespan
from partbox.worker.runners.transactor import Transactor


@dataclass
class State:
    told: list[Any]
    place: Any  # where it was entered: a thread, or a loop


def here() -> Any:
    """The loop that runs here, or else the thread."""
    return asyncio._get_running_loop() or threading.current_thread()


def add_lifespan(outbox: Outbox, *, is_async: bool) -> list[Any]:
    """What happens, in order, in the life of each process."""
    told: list[Any] = []

    def lifespan() -> Iterator[State]:
        state = State(told, here())
        told.append("entered")
        yield state
        assert here() is state.place
        told.append("left")

    async def lifespan_async() -> AsyncIterator[State]:
        state = State(told, here())
        told.append("entered")
        async with asyncio.TaskGroup():  # which must end in the task that began it
            yield state
        assert here() is state.place
        told.append("left")

    outbox.lifespan(lifespan_async if is_async else lifespan)
    return told


def told_in(state: State) -> list[Any]:
    return state.told


def embedded(desk: Desk) -> None:
    with desk.outbox.worker() as worker:
        assert worker.wait_until_empty(60)


def entered_by_a_loop(desk: Desk) -> None:
    async def program() -> None:
        async with desk.outbox.worker() as worker:
            await asyncio.to_thread(worker.wait_until_empty, 60)

    asyncio.run(program())


def drained(desk: Desk) -> None:
    assert desk.outbox.drain()


def by_the_kit(desk: Desk) -> None:
    with Kit(desk.outbox) as kit:
        kit.drain().assert_done()


def by_the_kit_in_a_loop(desk: Desk) -> None:
    async def test() -> None:
        with Kit(desk.outbox) as kit:
            (await kit.drain_async()).assert_done()

    asyncio.run(test())


WAYS = [embedded, entered_by_a_loop, drained, by_the_kit, by_the_kit_in_a_loop]
every_way = pytest.mark.parametrize("deliver", WAYS, ids=lambda each: each.__name__)
of_both_kinds = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@every_way
@of_both_kinds
def test_a_lifespan_is_entered_before_the_first_handler_and_left_after_the_last_of_any_kind(
    desk: Desk, deliver: Callable[[Desk], None], is_async: bool
) -> None:
    told = add_lifespan(desk.outbox, is_async=is_async)

    @desk.outbox.on("Sync")
    def handler(event: DeliveredEvent, state: State) -> None:
        state.told.append(event.event_type)

    @desk.outbox.on("Async")
    async def handler_async(state: State, event: DeliveredEvent) -> None:
        await asyncio.sleep(0)
        assert not is_async or here() is state.place
        event.state.told.append(event.event_type)

    @desk.outbox.on("Effect", transactional=True)
    def effect(event: DeliveredEvent, conn: Connection[Any], state: State) -> None:
        conn.execute("select 1")
        state.told.append(event.event_type)

    @desk.outbox.on_batch("List")
    async def batch(
        events: list[DeliveredEvent], told: Annotated[list[Any], Depends(lambda state: state.told)]
    ) -> None:
        told.append(events[0].event_type)

    for number, kind in enumerate(("Sync", "Async", "Effect", "List")):
        desk.publish("k", number, event_type=kind)
    deliver(desk)
    assert told == ["entered", "Sync", "Async", "Effect", "List", "left"]


@every_way
@of_both_kinds
def test_a_lifespan_whose_start_fails_raises_its_error_before_anything_is_delivered(
    desk: Desk, deliver: Callable[[Desk], None], is_async: bool
) -> None:
    def lifespan() -> Iterator[None]:
        raise LookupError("no such host")
        yield

    async def lifespan_async() -> AsyncIterator[None]:
        await asyncio.sleep(0)
        raise LookupError("no such host")
        yield

    desk.outbox.lifespan(lifespan_async if is_async else lifespan)
    desk.outbox.on("Counted")(desk.note)
    desk.publish("k", 1)
    with pytest.raises(LookupError, match=r"^no such host$"):
        deliver(desk)
    assert desk.seen == []
    assert desk.conn.execute("select count(*) from partbox.instance").fetchone() == (0,)
    assert desk.conn.execute("select status from partbox.record_status").fetchall() == [("pending",)]


@every_way
@of_both_kinds
def test_a_lifespan_whose_end_fails_raises_its_error_after_all_is_saved(
    desk: Desk, deliver: Callable[[Desk], None], is_async: bool
) -> None:
    def lifespan() -> Iterator[None]:
        yield
        raise LookupError("not closed")

    async def lifespan_async() -> AsyncIterator[None]:
        yield
        raise LookupError("not closed")

    desk.outbox.lifespan(lifespan_async if is_async else lifespan)
    desk.outbox.on("Counted")(desk.note)
    desk.publish("k", 1)
    with pytest.raises(LookupError, match=r"^not closed$"):
        deliver(desk)
    assert desk.conn.execute("select status from partbox.record_status").fetchall() == [("done",)]
    assert desk.conn.execute("select count(*) from partbox.instance").fetchone() == (0,)


@of_both_kinds
def test_a_worker_that_cannot_join_leaves_its_lifespan_again(desk: Desk, is_async: bool) -> None:
    told = add_lifespan(desk.outbox, is_async=is_async)
    desk.outbox.on("Counted")(desk.note)
    worker = desk.outbox.worker(subscription="default")
    desk.conn.execute("drop table partbox.instance cascade")
    with pytest.raises(Exception, match="instance"):
        worker.start()
    assert told == ["entered", "left"]


def test_each_delivery_of_the_test_kit_has_its_own_lifespan(desk: Desk) -> None:
    told = add_lifespan(desk.outbox, is_async=True)

    @desk.outbox.on("Counted")
    async def handler(event: DeliveredEvent, state: State) -> None:
        state.told.append(event.payload["number"])

    with Kit(desk.outbox) as kit:
        for number in range(2):
            kit.publish("Counted", {"number": number})
            kit.drain().assert_done()
        kit.publish("Counted", {"number": 2})
        kit.handle(*kit.published()[-1:]).assert_done()
    assert told == ["entered", 0, "left", "entered", 1, "left", "entered", 2, "left"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_lifespan, "MIN_LEAVE_TIME", 0.05)
    monkeypatch.setattr(process_lifespan, "ANSWER_TIMEOUT", 0.05)


@of_both_kinds
@pytest.mark.usefixtures("impatient")
def test_a_slow_end_of_a_lifespan_is_given_up_and_logged_after_the_worker_has_released_everything(
    desk_with: Callable[..., Desk], caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    desk = desk_with(drain_timeout=0.2)
    held, cancelled = threading.Event(), threading.Event()

    def lifespan() -> Iterator[None]:
        yield
        assert held.wait(60)

    async def lifespan_async() -> AsyncIterator[None]:
        yield
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    desk.outbox.lifespan(lifespan_async if is_async else lifespan)
    desk.outbox.on("Counted")(desk.note)
    desk.publish("k", 1)
    caplog.set_level(logging.WARNING, "partbox")
    assert desk.outbox.drain()
    (line,) = [each for each in caplog.records if getattr(each, "event", None) == "partbox.lifespan_overdue"]
    assert "lifespan" in line.getMessage()
    assert "\n" not in line.getMessage()
    assert desk.conn.execute("select count(owner) from partbox.partition").fetchone() == (0,)
    assert cancelled.is_set() is is_async
    held.set()


@pytest.mark.usefixtures("impatient")
def test_a_lifespan_is_left_though_a_handler_had_to_be_abandoned(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(drain_timeout=0.2)
    told = add_lifespan(desk.outbox, is_async=True)
    began, go_on = threading.Event(), threading.Event()

    @desk.outbox.on("Counted")
    def handler(event: DeliveredEvent) -> None:
        began.set()
        go_on.wait(60)

    desk.publish("k", 1)
    with desk.outbox.worker():
        assert began.wait(60)
    assert told == ["entered", "left"]
    go_on.set()


@pytest.mark.usefixtures("impatient")
def test_an_async_lifespan_whose_loop_a_handler_blocks_does_not_hold_up_the_stop(
    desk_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("partbox.worker.runners.event_loop.ANSWER_TIMEOUT", 0.1)
    desk = desk_with(drain_timeout=0.2)
    told = add_lifespan(desk.outbox, is_async=True)
    began, go_on = threading.Event(), threading.Event()

    @desk.outbox.on("Counted")
    async def handler(event: DeliveredEvent) -> None:
        began.set()
        go_on.wait(60)

    desk.publish("k", 1)
    with desk.outbox.worker():
        assert began.wait(60)
    assert [each.event for each in caplog.records if "lifespan" in each.event] == ["partbox.lifespan_overdue"]
    assert told == ["entered"]
    go_on.set()


def test_a_lifespan_is_left_after_a_transaction_that_a_stop_waits_for(
    desk_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desk_with(drain_timeout=0.1)
    told = add_lifespan(desk.outbox, is_async=False)
    began, go_on = threading.Event(), threading.Event()

    @desk.outbox.on("Counted", transactional=True)
    def handler(event: DeliveredEvent, conn: Connection[Any], state: State) -> None:
        began.set()
        go_on.wait(60)
        state.told.append("handled")

    stop = Transactor.stop
    monkeypatch.setattr(Transactor, "stop", lambda transactor, _: go_on.set() or stop(transactor, 60))
    desk.publish("k", 1)
    with desk.outbox.worker():
        assert began.wait(60)
    assert told == ["entered", "handled", "left"]


def test_a_handler_that_cancels_all_tasks_of_its_loop_does_not_end_the_lifespan(desk: Desk) -> None:
    told = add_lifespan(desk.outbox, is_async=True)

    @desk.outbox.on("Counted", retry="fixed:0", max_attempts=2)
    async def handler(event: DeliveredEvent, state: State) -> None:
        state.told.append(event.attempt)
        if event.attempt == 1:
            for task in asyncio.all_tasks():
                task.cancel()
            await asyncio.sleep(0)

    desk.publish("k", 1)
    assert desk.outbox.drain()
    assert told == ["entered", 1, 2, "left"]


async def test_an_application_that_is_cancelled_does_not_wait_for_an_async_lifespan_that_hangs(desk: Desk) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @desk.outbox.lifespan
    async def lifespan() -> AsyncIterator[None]:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        yield

    desk.outbox.on("Counted")(desk.note)
    task = asyncio.create_task(desk.outbox.worker().__aenter__())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended.wait()
    assert desk.conn.execute("select count(*) from partbox.instance").fetchone() == (0,)


def test_the_state_is_none_without_a_lifespan(desk: Desk) -> None:
    states = []
    desk.outbox.on("Counted")(lambda event: states.append(event.state))
    desk.publish("k", 1)
    assert desk.outbox.drain()
    assert states == [None]


def test_a_worker_that_is_not_enabled_does_not_enter_its_lifespan(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(enabled=False)
    told = add_lifespan(desk.outbox, is_async=False)
    desk.outbox.on("Counted")(desk.note)
    with desk.outbox.worker():
        pass
    assert told == []


def test_a_lifespan_that_does_not_yield_fails_at_its_start(desk: Desk) -> None:
    @desk.outbox.lifespan
    def lifespan() -> Iterator[None]:
        if desk.outbox is None:
            yield

    desk.outbox.on("Counted")(desk.note)
    with pytest.raises(RuntimeError, match="didn't yield"):
        desk.outbox.drain()


def test_a_lifespan_ends_with_the_loop_of_an_application_that_forgets_to_leave_its_worker(desk: Desk) -> None:
    told = []

    @desk.outbox.lifespan
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        finally:
            told.append(type(here()))

    @desk.outbox.on("Counted")
    async def handler(event: DeliveredEvent) -> None:
        desk.note(event)

    desk.publish("k", 1)
    worker = desk.outbox.worker()

    async def program() -> None:
        await worker.__aenter__()
        await asyncio.to_thread(worker.wait_until_empty, 60)

    asyncio.run(program())
    assert desk.numbers() == [1]
    assert len(told) == 1
    worker.stop()
