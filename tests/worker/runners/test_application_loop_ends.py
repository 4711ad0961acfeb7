"""An application that ends, blocks or fills the event loop that runs async handlers, too."""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Any

import pytest
from application_loop import Run, Waits, attempts, delivered, happens, instances, run
from desk import Desk
from waiting import eventually

from partbox.errors import PartboxError
from partbox.supervisor.embedded import EmbeddedWorker
from partbox.worker.runners.loop_hosts import SLICE, ApplicationLoop

__all__ = ["run"]

# The end of the loop.


def test_an_application_that_ends_without_leaving_its_worker_ends_it_and_charges_nothing(
    desk_with: Callable[..., Desk], run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """`asyncio.run` cancels all tasks at its end, and waits for them."""
    desk = desk_with(heartbeat=0.2, lease=2)
    waits = Waits(desk)
    desk.publish("k", 1, 2)

    async def main() -> EmbeddedWorker:
        worker = await desk.outbox.worker().__aenter__()
        await happens(waits.begun.is_set)
        return worker

    worker = run(main())
    assert waits.cancelled.is_set()
    failure = eventually(lambda: worker._worker.failure)
    assert "the application has ended the event loop that runs the handlers" in str(failure)
    assert caplog.text.count("the worker ends: the application has ended") == 1
    with pytest.raises(PartboxError, match="the application has ended the event loop"):
        worker.wait_until_empty(120)
    worker.stop()
    waits.go_on.set()
    run(delivered(desk))
    assert attempts(desk) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("lists", [False, True])
def test_ctrl_c_in_a_handler_is_for_the_application(desk: Desk, lists: bool, waits: bool) -> None:
    """The main thread is in a handler when it comes, and no attempt of that is charged."""
    interrupted, handled = list[int](), asyncio.Event()

    async def handle(given: Any) -> None:
        if waits:
            await asyncio.sleep(0)
        if not interrupted:
            interrupted.append(1)
            signal.raise_signal(signal.SIGINT)  # of the second Ctrl-C: the first only cancels the main task
        for event in given if lists else [given]:
            desk.note(event)
        handled.set()

    (desk.outbox.on_batch if lists else desk.outbox.on)("Counted")(handle)
    desk.publish("k", 1)

    async def main() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        async with desk.outbox.worker():
            await handled.wait()

    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)
    assert instances(desk) == 0
    asyncio.run(delivered(desk))
    assert attempts(desk) == [(1, 1)]


def test_no_handler_begins_after_the_loop_of_the_lifespan_has_ended(desk_with: Callable[..., Desk], run: Run) -> None:
    """Sync handlers do not run in it, but what they get is closed there."""
    desk = desk_with(heartbeat=0.2, lease=2)
    closed = threading.Event()

    @desk.outbox.lifespan
    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        finally:
            closed.set()

    desk.outbox.register(desk.note, "Counted")

    async def main() -> EmbeddedWorker:
        return await desk.outbox.worker().__aenter__()

    worker = run(main())
    assert closed.is_set()
    desk.publish("k", 1)
    eventually(lambda: worker._worker.failure)
    assert desk.seen == []
    worker.stop()
    run(delivered(desk))
    assert attempts(desk) == [(1, 1)]


def test_a_task_of_the_application_that_holds_the_worker_leaves_in_time_when_the_loop_ends(
    desk_with: Callable[..., Desk], run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cancelled together with the handlers, and finds none that it could wait for."""
    desk = desk_with(drain_timeout=600)
    caplog.set_level(logging.INFO)
    waits = Waits(desk)
    desk.publish("k", 1)
    holding = list[Any]()

    async def hold() -> None:
        async with desk.outbox.worker():
            await asyncio.sleep(600)

    async def main() -> None:
        holding.append(asyncio.create_task(hold()))
        await happens(waits.begun.is_set)

    run(main())
    assert holding[0].cancelled()
    assert instances(desk) == 0
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
    waits.go_on.set()
    run(delivered(desk))
    assert attempts(desk) == [(1, 1)]


def test_a_loop_that_is_closed_under_the_worker_ends_it(desk_with: Callable[..., Desk]) -> None:
    desk = desk_with(heartbeat=0.2, lease=2)

    @desk.outbox.on("Counted")
    async def handle(event: Any) -> None:
        desk.note(event)

    loop = asyncio.new_event_loop()
    worker = loop.run_until_complete(desk.outbox.worker().__aenter__())
    loop.close()
    desk.publish("k", 1)
    eventually(lambda: worker._worker.failure)
    worker.stop()
    assert instances(desk) == 0
    asyncio.run(delivered(desk))
    assert attempts(desk) == [(1, 1)]


def test_a_stalled_loop_delays_handlers_and_a_stop_does_not_wait_for_it_for_ever(
    desk_with: Callable[..., Desk], caplog: pytest.LogCaptureFixture
) -> None:
    desk = desk_with(drain_timeout=0.2)
    waits = Waits(desk)
    loop = asyncio.new_event_loop()
    worker = loop.run_until_complete(desk.outbox.worker().__aenter__())
    desk.publish("k", 1)
    loop.run_until_complete(happens(waits.begun.is_set))
    worker.stop()
    assert "may be delivered again" in caplog.text
    loop.run_until_complete(happens(waits.cancelled.is_set))
    assert asyncio.all_tasks(loop) == set()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


# A busy application.


def test_an_application_that_computes_delays_handlers_and_loses_neither_lease_nor_finished_work(
    desk_with: Callable[..., Desk],
) -> None:
    """Heartbeats, reading and saving do not wait for it."""
    desk = desk_with(heartbeat=0.2, lease=1.2)

    @desk.outbox.on("Counted")
    async def handle(event: Any) -> None:
        desk.note(event)

    def beats() -> tuple[Any, ...]:
        row = desk.conn.execute("select instance_id, heartbeat_at from partbox.instance").fetchone()
        assert row is not None
        return tuple(row)

    async def main() -> None:
        async with desk.outbox.worker() as worker:
            desk.publish("k", 1)
            await happens(lambda: desk.seen)
            version = worker._slot.version
            eventually(desk.all_done)  # blocks the loop: what is done is saved all the same
            desk.publish("k", 2)
            identity, at = beats()
            eventually(lambda: (beats()[1] - at).total_seconds() > 2.5)  # the loop stands still for two leases
            assert beats()[0] == identity
            assert len(desk.seen) == 1
            await happens(desk.all_done)
            assert worker._slot.version == version

    asyncio.run(main())
    assert attempts(desk) == [(1, 1), (2, 1)]


class Loop:
    """A loop that counts rounds by hand."""

    def __init__(self) -> None:
        self.next: list[Callable[[], object]] = []
        self.create_future = Future

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.next.append(callback)

    def round(self) -> None:
        now, self.next = self.next, []
        for callback in now:
            callback()


class Slices:
    """The walkers of a loop, and a clock that counts slices."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.loop: Any = Loop()
        monkeypatch.setattr("partbox.worker.runners.loop_hosts.time.monotonic", lambda: self.now * SLICE)
        monkeypatch.setattr("partbox.worker.runners.pool_guard.shared_loops", set())
        self.host = ApplicationLoop(self.loop, lambda: None)

    def ends(self, now: float) -> float:
        """When a walk ends that begins now."""
        self.now = now
        return self.host.find_slice_end(now * SLICE, 1.0) / SLICE


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Slices:
    return Slices(monkeypatch)


def test_all_async_runners_of_a_loop_share_one_slice_of_each_round(slices: Slices) -> None:
    assert slices.ends(1) == pytest.approx(2)
    assert slices.ends(1.5) == pytest.approx(2)  # another walker, in the same slice
    assert slices.host.request_slice() is None
    assert slices.ends(2.5) == pytest.approx(2)  # over: one event at most, then it waits
    assert slices.host.request_slice() is not None
    slices.loop.round()
    assert slices.host.request_slice() is None
    assert slices.ends(3) == pytest.approx(4)
    slices.loop.round()
    assert slices.ends(3.5) == pytest.approx(4)  # a new round does not end a slice
    assert slices.ends(4.5) == pytest.approx(5.5)  # nobody waits for a slice that was over a round ago
    assert slices.host.find_slice_end(7 * SLICE, 0.0) / SLICE == pytest.approx(5.5)


def test_waiting_async_runners_are_called_one_after_the_other_as_long_as_the_slice_lasts(slices: Slices) -> None:
    def waiting() -> Any:
        future = slices.host.request_slice()
        assert future is not None
        return future

    slices.ends(1)
    slices.now = 2.5
    first, cancelled, second, third = waiting(), waiting(), waiting(), waiting()
    cancelled.cancel()  # by a handler that cancels all tasks
    slices.loop.round()
    assert [each.done() for each in (first, second, third)] == [True, False, False]
    slices.host.wake_next()  # the first; its handler waits
    slices.ends(2.6)
    slices.loop.round()
    assert [each.done() for each in (second, third)] == [True, False]
    slices.host.wake_next()  # the second; its handlers take what is left
    slices.now = 3.7
    slices.ends(3.7)
    slices.now = 4.8
    assert slices.host.request_slice() is not None
    slices.loop.round()
    assert third.done()  # in the next round


@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_application_has_its_turn_while_handlers_that_never_wait_have_a_backlog(
    desk: Desk, run: Run, concurrency: int
) -> None:
    """Between two of its rounds no more is handled than fits into a slice, and one event of each walker."""
    handled, most = [0], [0]

    @desk.outbox.on("Counted")
    async def handle(event: Any) -> None:
        handled[0] += 1
        until = asyncio.get_running_loop().time() + SLICE / 4
        while asyncio.get_running_loop().time() < until:
            pass

    for key in range(40):
        desk.publish(f"k{key}", *range(10))

    async def main() -> None:
        async with desk.outbox.worker(concurrency=concurrency):
            before = handled[0]  # some rounds have passed while the worker began
            while handled[0] < 400:
                await asyncio.sleep(0)
                most[0], before = max(most[0], handled[0] - before), handled[0]

    run(main())
    assert 0 < most[0] <= 5 + concurrency
