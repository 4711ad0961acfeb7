"""Async handlers in the event loop of the application that enters `async with outbox.worker()`."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
from application_loop import Run, Waits, attempts, delivered, happens, instances, owned, run, waits
from desk import Desk

from partbox.errors import PartboxError
from partbox.supervisor.embedded import EmbeddedWorker

__all__ = ["run", "waits"]

WHO = contextvars.ContextVar("WHO", default="nobody")

# Where handlers run.


def test_async_handlers_run_in_the_loop_that_entered_and_sync_ones_in_threads(desk: Desk, run: Run) -> None:
    """Single ones, lists, and both kinds in one aggregate."""
    ran: dict[str, set[Any]] = {}

    def note(kind: str, number: int) -> None:
        where = asyncio._get_running_loop(), threading.current_thread().name.startswith("partbox-"), WHO.get()
        ran.setdefault(kind, set()).add(where)

    async def single(event: Any) -> None:
        await asyncio.sleep(0)
        note("single", event.payload["number"])

    async def many(events: Any) -> None:
        for event in events:
            note("many", event.payload["number"])
        await asyncio.sleep(0)

    def sync(event: Any) -> None:
        note("sync", event.payload["number"])

    desk.outbox.on("Single")(single)
    desk.outbox.on_batch("Many", max_size=3)(many)
    desk.outbox.on("Sync")(sync)

    async def main() -> Any:
        WHO.set("the application")
        async with desk.outbox.worker(concurrency=4):
            for number in range(5):
                for kind in ("Single", "Many", "Sync"):
                    for key in ("k", "l"):
                        desk.publish(key, number, event_type=kind)
            await happens(desk.all_done)
        return asyncio.get_running_loop()

    here = run(main())
    assert ran["single"] == ran["many"] == {(here, False, "the application")}
    assert ran["sync"] == {(None, True, "the application")}
    assert (instances(desk), owned(desk)) == (0, 0)


@pytest.mark.parametrize("how", ["own", "sync"])
def test_a_worker_has_a_loop_of_its_own_on_request_and_in_a_sync_block(desk: Desk, how: str) -> None:
    loops = set[Any]()

    @desk.outbox.on("Counted")
    async def handle(event: Any) -> None:
        loops.add((asyncio.get_running_loop(), threading.current_thread().name))

    async def main() -> Any:
        if how == "own":
            async with desk.outbox.worker(loop="own") as worker:
                assert await asyncio.to_thread(worker.wait_until_empty, 120)
        else:
            with desk.outbox.worker() as worker:
                assert worker.wait_until_empty(120)
        return asyncio.get_running_loop()

    desk.publish("k", 1, 2)
    here = asyncio.run(main())
    ((loop, thread),) = loops
    assert loop is not here
    assert thread == "partbox-async"


@pytest.mark.parametrize("wrong", ["application", "", True, 1, asyncio.sleep])
def test_another_value_of_loop_is_refused_in_one_line(desk: Desk, wrong: Any) -> None:
    desk.outbox.register(desk.note, "Counted")
    with pytest.raises(PartboxError, match=r"^loop = .* is invalid: give 'own', or nothing for the event loop that"):
        desk.outbox.worker(loop=wrong)


def test_without_a_loop_of_asyncio_the_error_says_what_to_do(desk: Desk) -> None:
    """As under trio."""
    desk.outbox.register(desk.note, "Counted")
    entering = desk.outbox.worker().__aenter__()
    with pytest.raises(PartboxError, match=r"^no asyncio event loop runs here.*`with outbox\.worker\(\):` in a"):
        entering.send(None)
    assert instances(desk) == 0


def test_two_workers_share_a_loop(desk: Desk, run: Run) -> None:
    desk.outbox.subscriptions.create("mails", "beginning")
    loops = list[Any]()

    async def handle(event: Any) -> None:
        await asyncio.sleep(0)
        loops.append(asyncio.get_running_loop())

    desk.outbox.register(handle, "Counted")
    desk.outbox.register(handle, "Counted", subscription="mails")
    desk.publish("k", *range(20))

    async def main() -> None:
        async with desk.outbox.worker(), desk.outbox.worker(subscription="mails"):
            await happens(lambda: len(loops) == 40)
        assert set(loops) == {asyncio.get_running_loop()}

    run(main())


def test_a_handler_that_cancels_its_task_is_charged_and_the_next_one_runs(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(max_attempts=1)

    @desk.outbox.on("Counted")
    async def handle(event: Any) -> None:
        desk.note(event)
        if event.payload["number"] % 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(0)

    desk.publish("k", *range(6))

    async def main() -> None:
        async with desk.outbox.worker() as worker:
            await happens(lambda: len(desk.seen) == 6)
            await happens(lambda: desk.outbox.dead.count() == 3)
            assert worker._worker.failure is None

    asyncio.run(main())
    assert desk.numbers() == [*range(6)]


# Start and stop.


def test_calls_that_would_block_the_loop_are_refused_with_the_remedy(desk: Desk) -> None:
    desk.outbox.register(desk.note, "Counted")

    async def main() -> None:
        async with desk.outbox.worker() as worker:
            with pytest.raises(PartboxError, match=r"^stop\(\) would block .* leave `async with`, or use `await"):
                worker.stop()
            with pytest.raises(PartboxError, match=r"^wait_until_empty\(\) would block .*: use `await asyncio\.to_"):
                worker.wait_until_empty(1)
            desk.publish("k", 1)
            assert await asyncio.to_thread(worker.wait_until_empty, 120)
            await asyncio.to_thread(worker.stop)
        assert instances(desk) == 0

    asyncio.run(main())


@pytest.mark.parametrize("error", [None, ValueError])
def test_leaving_the_worker_waits_for_the_handlers_that_run(desk: Desk, waits: Waits, run: Run, error: Any) -> None:
    """Also if the executor of the loop has no thread left, and an exception leaves the block."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        release = threading.Event()
        held = loop.run_in_executor(None, release.wait)
        try:
            async with desk.outbox.worker():
                while not waits.begun.is_set():
                    await asyncio.sleep(0.001)
                loop.call_later(0.1, waits.go_on.set)
                if error is not None:
                    raise error
        except ValueError:
            assert error is ValueError
        assert attempts(desk) == [(1, 1)]
        assert (instances(desk), owned(desk)) == (0, 0)
        release.set()
        await held

    run(main())
    assert desk.all_done()


def test_past_the_drain_timeout_partboxs_own_tasks_are_cancelled_and_no_others(
    desk_with: Callable[..., Desk], run: Run
) -> None:
    desk = desk_with(drain_timeout=0.2)
    waits, ticks = Waits(desk), list[int]()
    desk.publish("k", 1)

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.001)
            ticks.append(1)

    async def main() -> None:
        mine = asyncio.create_task(tick())
        async with desk.outbox.worker():
            await happens(waits.begun.is_set)
        assert waits.cancelled.is_set()
        assert asyncio.all_tasks() == {mine, asyncio.current_task()}
        before = len(ticks)
        await happens(lambda: len(ticks) > before + 2)
        mine.cancel()

    run(main())
    waits.go_on.set()
    run(delivered(desk))
    assert attempts(desk) == [(1, 1)]  # and no attempt is charged


def test_a_cancelled_application_leaves_in_order_and_one_that_is_cancelled_again_leaves_at_once(
    desk: Desk, waits: Waits, run: Run
) -> None:
    """The handlers have ended in both cases before the program goes on, which closes what they use."""
    left = threading.Event()

    async def application() -> None:
        try:
            async with desk.outbox.worker():
                await asyncio.sleep(600)
        finally:
            left.set()

    async def main() -> None:
        for times in (2, 1):
            waits.begun.clear()
            left.clear()
            entered = asyncio.create_task(application())
            await happens(waits.begun.is_set)
            entered.cancel()
            await asyncio.sleep(0.1)  # time enough to leave, which it must not while the handler runs
            assert not left.is_set()
            if times == 2:
                entered.cancel()
            else:
                waits.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await entered
            assert waits.cancelled.is_set() == (times == 2)
            waits.cancelled.clear()

    run(main())
    assert attempts(desk) == [(1, 1)]
    assert desk.all_done()


def test_a_cancelled_scope_of_anyio_waits_for_the_end_of_the_worker(desk: Desk, waits: Waits, run: Run) -> None:
    """It cancels whoever waits inside again and again: the handlers are cancelled, and have ended when it is left."""

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with desk.outbox.worker():
                await happens(waits.begun.is_set)
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert waits.cancelled.is_set()
        assert instances(desk) == 0

    run(main())
    waits.go_on.set()
    run(delivered(desk))
    assert attempts(desk) == [(1, 1)]


def test_an_application_that_is_cancelled_while_it_enters_leaves_no_worker_behind(
    desk: Desk, waits: Waits, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    starting, go_on = threading.Event(), threading.Event()
    start = EmbeddedWorker.start

    def slow(self: EmbeddedWorker) -> None:
        start(self)
        starting.set()
        go_on.wait(120)

    monkeypatch.setattr(EmbeddedWorker, "start", slow)

    async def main() -> None:
        entering = asyncio.create_task(desk.outbox.worker().__aenter__())
        await happens(starting.is_set)
        entering.cancel()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert (instances(desk), owned(desk)) == (0, 0)

    run(main())
    assert not any(thread.name.startswith("partbox-membership") for thread in threading.enumerate())
