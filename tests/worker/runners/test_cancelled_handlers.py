"""Handlers that cancel themselves, their loop or all tasks of it, or raise what ends threads: it is their own error."""

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hand_moved import HandMoved
from waiting import eventually

from partbox.handlers import Handlers
from partbox.protocol.retry import Fixed


def cancel_own_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def cancels_itself() -> None:
    cancel_own_task()
    await asyncio.sleep(10)


async def cancels_itself_and_returns() -> None:
    cancel_own_task()


async def cancels_itself_and_says_no_more() -> None:
    cancel_own_task()
    try:
        await asyncio.sleep(10)
    except asyncio.CancelledError:
        return


async def cancels_itself_often() -> None:
    cancel_own_task()
    cancel_own_task()
    try:
        await asyncio.sleep(10)
    finally:
        cancel_own_task()


async def cancels_all_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(10)


async def is_cancelled_from_outside() -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.sleep(10)


async def raises_cancelled() -> None:
    raise asyncio.CancelledError


async def misuses_a_timeout() -> None:
    async with asyncio.timeout(0):
        try:
            await asyncio.sleep(10)
        finally:
            cancel_own_task()


async def raises_keyboard_interrupt() -> None:
    raise KeyboardInterrupt


async def raises_system_exit() -> None:
    raise SystemExit(3)


async def raises_generator_exit() -> None:
    raise GeneratorExit


async def has_a_task_that_exits() -> None:
    async def exits() -> None:
        raise SystemExit(3)

    await asyncio.create_task(exits())


async def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()
    raise ValueError("and fails")


ONES_OWN = [value for name, value in globals().items() if inspect.iscoroutinefunction(value)]
NO_ERROR = {cancels_itself_and_returns, cancels_itself_and_says_no_more}  # they have ended, without an error


class Attempts:
    """The ids that handlers saw, in the order of starts; the first attempt of event 11 goes wrong."""

    def __init__(self, wrong: Callable[[], Any]) -> None:
        self.wrong = wrong
        self.started: list[int] = []
        self.ended: list[int] = []

    async def one(self, event: Any) -> None:
        await self.some([event])

    async def some(self, events: Any) -> None:
        ids = [event.id for event in events]
        self.started += ids
        if 11 in ids and self.started.count(11) == 1:
            await self.wrong()
        else:
            await asyncio.sleep(0)  # where it would meet a cancelling that is not its own
        self.ended += ids


@pytest.fixture
def failures() -> Iterator[list[BaseException]]:
    """Errors that ended a part of the worker: none may."""
    seen: list[BaseException] = []
    yield seen
    assert not seen


def delivered(handlers: Handlers, failures: list[BaseException], done: Callable[[], bool]) -> HandMoved:
    rig = HandMoved(handlers)
    rig.dispatcher._on_failure = failures.append
    rig.read(10, 11, 12, 13)

    def moved_on() -> bool:
        rig.go_on()
        return done() and not rig.partition.running and not rig.partition.parked.chains

    try:
        eventually(moved_on)
    finally:
        rig.dispatcher.join(0.0)
    return rig


@pytest.mark.parametrize("wrong", ONES_OWN, ids=lambda each: each.__name__)
def test_whatever_an_async_handler_does_to_its_task_its_aggregate_goes_on(
    wrong: Any, failures: list[BaseException]
) -> None:
    attempts, handlers = Attempts(wrong), Handlers()
    handlers.on("Counted", retry=Fixed(0))(attempts.one)
    delivered(handlers, failures, lambda: 13 in attempts.ended)
    assert attempts.started == [10, 11, 12, 13] if wrong in NO_ERROR else [10, 11, 11, 12, 13]
    assert attempts.ended == [10, 11, 12, 13]


@pytest.mark.parametrize("wrong", [cancels_itself, cancels_all_tasks, raises_cancelled, raises_system_exit])
def test_whatever_an_async_handler_of_lists_does_to_its_task_the_list_is_judged(
    wrong: Any, failures: list[BaseException]
) -> None:
    attempts, handlers = Attempts(wrong), Handlers()
    handlers.on_batch("Counted", max_size=2, retry=Fixed(0))(attempts.some)
    delivered(handlers, failures, lambda: sorted(attempts.ended) == [10, 11, 12, 13])
    assert attempts.started.count(11) == 2


@pytest.mark.parametrize("wrong", [KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError])
def test_what_ends_threads_is_the_error_of_a_sync_handler(wrong: Any, failures: list[BaseException]) -> None:
    seen: list[int] = []

    def handler(event: Any) -> None:
        seen.append(event.id)
        if seen.count(11) == 1 and event.id == 11:
            raise wrong

    handlers = Handlers()
    handlers.on("Counted", retry=Fixed(0))(handler)
    delivered(handlers, failures, lambda: 13 in seen)
    assert seen == [10, 11, 11, 12, 13]


def test_an_interceptor_that_cancels_afterwards_is_logged_and_changes_nothing(failures: list[BaseException]) -> None:
    from partbox.interceptors import wrap

    class Cancels:
        async def after(self, event: Any, outcome: Any, error: Any) -> None:
            raise asyncio.CancelledError

    async def handler(event: Any) -> str:
        return "done"

    call = wrap(handler, [Cancels()], is_async=True, is_batch=False)
    assert asyncio.run(call(object())) == "done"


def test_tasks_that_a_handler_cancels_before_they_begin_begin_again(failures: list[BaseException]) -> None:
    seen: list[tuple[str, int]] = []

    async def handler(event: Any) -> None:
        seen.append((event.aggregate_id, event.id))
        if len(seen) == 1:
            await cancels_all_tasks()

    handlers = Handlers()
    handlers.on("Counted", retry=Fixed(0))(handler)
    rig = HandMoved(handlers)
    rig.dispatcher._on_failure = failures.append
    rig.read(10, 11, 12, keys="abc")
    held, go = threading.Event(), threading.Event()
    loop = rig.dispatcher._loop

    async def first() -> None:
        held.set()
        go.wait(10)

    loop.start(first)
    assert held.wait(10)
    while rig.turn():  # all three lanes are given to the loop before it goes on: two are cancelled before they began
        pass
    go.set()

    def all_done() -> bool:
        rig.go_on()
        return len(seen) == 4 and not rig.partition.running

    eventually(all_done)
    rig.dispatcher.join(0.0)
    assert sorted(set(seen)) == [("a", 10), ("b", 11), ("c", 12)]


def test_what_the_loop_itself_cancels_is_neither_done_nor_failed(failures: list[BaseException]) -> None:
    begun = threading.Event()

    async def handler(event: Any) -> None:
        begun.set()
        await asyncio.sleep(60)

    handlers = Handlers()
    handlers.on("Counted")(handler)
    rig = HandMoved(handlers)
    rig.dispatcher._on_failure = failures.append
    rig.read(10, 11)
    rig.turn()
    assert begun.wait(10)
    assert not rig.dispatcher.join(0.0)
    with rig.engine.lock:
        assert (rig.partition.running, dict(rig.partition.parked.pending), rig.partition.progress.count_finished()) == (
            1,
            {},
            0,
        )
