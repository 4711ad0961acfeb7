"""Handlers that cancel themselves, their loop or all tasks of it, or raise what ends threads: it is their own error."""

import asyncio
import inspect
import threading
from collections import defaultdict
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest
from desk import Desk
from event_loops import LIBRARIES

from partbox.worker.runners.event_loop import EventLoop, begin_handler, run_in_context
from partbox.worker.runners.loop_hosts import find_loop_factory


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


@pytest.fixture(params=LIBRARIES)
def loop(request: pytest.FixtureRequest) -> EventLoop:
    return EventLoop(find_loop_factory(request.param))


def walked(wrong: Callable[[], Any], loop: EventLoop) -> list[object]:
    """What comes of four events whose handlers run one after the other in one task; that of the second goes wrong."""
    results = SimpleQueue[object]()

    async def handler(number: int) -> None:
        await (wrong() if number == 1 else asyncio.sleep(0))  # where it would meet a cancelling that is not its own

    async def walk() -> None:
        for number in range(4):
            results.put(
                await EventLoop.run_handler(
                    partial(run_in_context, copy_context(), begin_handler, handler), number, None
                )
            )

    loop.start_runner(walk)
    found = [results.get(timeout=60) for _ in range(4)]
    loop.stop()
    return found


@pytest.mark.parametrize("wrong", ONES_OWN, ids=lambda each: each.__name__)
def test_whatever_an_async_handler_does_to_its_task_is_its_own_error_and_the_next_one_runs(
    wrong: Any, loop: EventLoop
) -> None:
    before, result, *after = walked(wrong, loop)
    assert isinstance(result, BaseException) is (wrong not in NO_ERROR)
    assert [before, *after] == [None, None, None]


def test_whatever_an_async_handler_does_to_its_task_its_aggregate_goes_on(desk_with: Callable[..., Desk]) -> None:
    """All of it in one worker, whose handlers of others are cancelled by some: each event ends once, and in order."""
    desk, started, ended = desk_with(retry="fixed:0", max_attempts=1_000), set[Any](), defaultdict[Any, list[int]](list)
    wrongs = {each.__name__: each for each in ONES_OWN}

    async def some(events: Any) -> None:
        for event in events:
            if event.payload["number"] == 1 and event.event_id not in started:
                started.add(event.event_id)
                await wrongs[event.aggregate_id]()
            await asyncio.sleep(0)
        for event in events:
            ended[event.event_type, event.aggregate_id].append(event.payload["number"])

    @desk.outbox.on("One")
    async def one(event: Any) -> None:
        await some([event])

    desk.outbox.on_batch("List", max_size=2)(some)
    for name in wrongs:
        for kind in ("One", "List"):
            desk.publish(name, 0, 1, 2, 3, event_type=kind)
    worker = desk.outbox.worker(concurrency=100)
    with worker:
        desk.eventually(desk.all_done)
    assert worker._worker.failure is None
    assert len(ended) == 2 * len(wrongs)
    assert {kind: numbers for kind, numbers in ended.items() if numbers != [0, 1, 2, 3]} == {}


@pytest.mark.parametrize("wrong", [KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError])
def test_exceptions_that_end_threads_are_errors_of_a_sync_handler(desk_with: Callable[..., Desk], wrong: Any) -> None:
    desk = desk_with(retry="fixed:0")

    def handler(event: Any) -> None:
        desk.note(event)
        if event.payload["number"] == 1 and event.attempt == 1:
            raise wrong

    desk.outbox.register(handler, "Counted")
    desk.publish("k", 0, 1, 2)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert desk.numbers() == [0, 1, 1, 2]


def test_an_interceptor_that_cancels_afterwards_is_logged_and_changes_nothing() -> None:
    from partbox.interceptors import wrap_call

    class Cancels:
        async def after(self, event: Any, outcome: Any, error: Any) -> None:
            raise asyncio.CancelledError

    async def handler(event: Any) -> str:
        return "done"

    call = wrap_call(handler, [Cancels()], is_async=True, is_batch=False)
    assert asyncio.run(call(object())) == "done"


def test_tasks_that_a_handler_cancels_before_they_begin_are_started_again(loop: EventLoop) -> None:
    held, go, ran = threading.Event(), threading.Event(), SimpleQueue[int]()

    async def blocks() -> None:
        held.set()
        go.wait(60)
        await EventLoop.run_handler(
            partial(run_in_context, copy_context(), begin_handler, lambda _: cancels_all_tasks()), None, None
        )

    async def walk(number: int) -> None:
        ran.put(number)

    loop.start_runner(blocks)
    assert held.wait(60)
    for number in range(3):  # they are given to the loop before it goes on, so they are cancelled before they begin
        loop.start_runner(lambda number=number: walk(number))  # type: ignore[misc]
    go.set()
    assert sorted(ran.get(timeout=60) for _ in range(3)) == [0, 1, 2]
    loop.stop()


def test_a_handler_that_the_loop_itself_cancels_has_no_result(loop: EventLoop) -> None:
    begun, results = threading.Event(), list[object]()

    async def handler(_: object) -> None:
        begun.set()
        await asyncio.sleep(60)

    async def walk() -> None:
        results.append(
            await EventLoop.run_handler(partial(run_in_context, copy_context(), begin_handler, handler), None, None)
        )

    loop.start_runner(walk)
    assert begun.wait(60)
    assert loop.cancel_handlers()
    loop.stop()
    assert results == []
