"""Calls of the dead-letter hook that do not return, or fail: everybody else goes on."""

import asyncio
import contextvars
import socket
import threading
import time
from itertools import pairwise

import pytest
from neighbours import BEGUN, SOON, released_at_the_end
from waiting import eventually

from partbox import Dead
from partbox.db.inspect import stats
from partbox.worker.engine import dead_letters as engine_letters
from partbox.worker.runners import dead_letters
from partbox.worker.worker import Worker


def owed(desk):
    """The number of dead rows that are owed to the hook."""
    found = desk.conn.execute("select count(*) from partbox.parked where state = 'dead' and due_at is not null")
    return found.fetchone()[0]


def kills(desk, **options):
    """Register a handler of which every event but those of the aggregate "well" dies."""
    answer = lambda event: None if event.aggregate_id == "well" else Dead("no use")  # noqa: E731
    desk.outbox.register(lambda event: desk.note(event) or answer(event), "Counted", **options)


def named(caplog, name):
    return [record for record in caplog.records if getattr(record, "event", "") == f"partbox.{name}"]


def sink(desk):
    """The target of dead events, as the process has noted it."""
    return next(iter(stats.read_cluster(desk.conn, "partbox", "default").sinks), None)


@pytest.mark.parametrize("kind", ["sync", "async", "blocks the loop"])
def test_a_hook_that_does_not_return_holds_up_no_event_and_is_named(desk_with, kind, monkeypatch, caplog):
    """Fault kind: nobody stands behind a call that does not return."""
    monkeypatch.setattr(dead_letters, "SLOW", 0.2)
    desk, go_on, calls = desk_with(drain_timeout=1), threading.Event(), []

    def hook(event):
        calls.append(event.payload["number"])
        go_on.wait(120)

    async def wait(event):
        calls.append(event.payload["number"])
        await asyncio.get_running_loop().create_future()

    async def block(event):
        hook(event)

    desk.outbox.on_dead_letter({"sync": hook, "async": wait, "blocks the loop": block}[kind])
    kills(desk)
    for number in range(8):
        desk.publish(f"ill-{number}", number)
    with desk.outbox.worker(concurrency=2), released_at_the_end(go_on):
        eventually(lambda: calls and owed(desk) == 8, SOON)
        eventually(lambda: named(caplog, "slow_dead_letter"), SOON)
        desk.publish("well", *range(10, 30))
        eventually(lambda: desk.numbers("well") == [*range(10, 30)], SOON)
        eventually(lambda: (found := sink(desk)) is not None and found.error is not None, SOON)
        assert (sink(desk).takes_dead_letters, sink(desk).sent, len(calls)) == (True, 0, 1)
        go_on.set()
        if kind == "async":
            return  # the stop cancels it
        eventually(lambda: owed(desk) == 0, SOON)
    assert sorted(calls) == [*range(8)]


def test_a_hook_call_over_its_timeout_is_abandoned_and_one_event_at_a_time_is_tried_until_it_returns(
    desk, monkeypatch, caplog
):
    """Fault kind: nobody stands behind a call that does not return. The time is that of the event's handler."""
    monkeypatch.setattr(engine_letters, "RETRY", 0.05)
    monkeypatch.setattr(engine_letters, "FIRST_PAUSE", 0.05)
    go_on, calls = threading.Event(), []

    @desk.outbox.on_dead_letter
    def hook(event):
        calls.append((time.monotonic(), event.payload["number"]))
        if len(calls) <= 3:
            go_on.wait(120)

    kills(desk, timeout=0.3)
    for number in range(20):
        desk.publish(f"ill-{number}", number)
    with desk.outbox.worker(concurrency=2), released_at_the_end(go_on):
        eventually(lambda: len(calls) == 23 and owed(desk) == 0, SOON)
    times = [at for at, _ in calls]
    assert {number for _, number in calls} == set(range(20))
    assert [later - earlier >= 0.3 for earlier, later in pairwise(times[:4])] == [True] * 3
    failed = named(caplog, "dead_letter_failed")
    assert [record.delay for record in failed] == [0.05, 0.1, 0.2]
    assert all("the call ran longer than 0.3 s" in record.getMessage() for record in failed)


def test_while_the_endpoint_fails_one_event_at_a_time_is_tried_with_a_growing_delay(desk, monkeypatch):
    monkeypatch.setattr(engine_letters, "RETRY", 0.05)
    monkeypatch.setattr(engine_letters, "FIRST_PAUSE", 0.2)
    calls, up = [], threading.Event()

    @desk.outbox.on_dead_letter
    def hook(event):
        calls.append(time.monotonic())
        if not up.is_set():
            raise ConnectionError("the pager is away")

    kills(desk)
    for number in range(60):
        desk.publish(f"ill-{number}", number)
    with desk.outbox.worker(concurrency=2):
        eventually(lambda: len(calls) == 4, SOON)
        pauses = [later - earlier for earlier, later in pairwise(calls)]
        assert all(pause >= least for pause, least in zip(pauses, (0.2, 0.4, 0.8), strict=True)), pauses
        up.set()
        eventually(lambda: owed(desk) == 0, SOON)
    assert 64 <= len(calls) <= 66


def test_an_async_hook_runs_in_the_loop_of_the_handlers_within_the_time_of_its_event(desk, monkeypatch, caplog):
    monkeypatch.setattr(engine_letters, "RETRY", 0.05)
    monkeypatch.setattr(engine_letters, "FIRST_PAUSE", 0.05)
    loops, ended = [], []

    @desk.outbox.on("Counted", timeout=0.3)
    async def handler(event):
        loops.append(asyncio.get_running_loop())
        return Dead("no use")

    @desk.outbox.on_dead_letter
    async def hook(event, error):
        loops.append(asyncio.get_running_loop())
        try:
            await asyncio.sleep(0 if len(loops) > 2 else 120)
        finally:
            ended.append(error)

    desk.publish("ill", 1)
    with desk.outbox.worker() as worker:
        eventually(lambda: owed(desk) == 0 and len(loops) == 3, SOON)
        assert worker._worker.dispatcher.is_async  # no thread is needed for the hook's sake
    assert len(set(loops)) == 1
    assert ended == ["no use"] * 2
    assert len(named(caplog, "dead_letter_failed")) == 1


def test_no_call_sees_the_context_variables_of_another_and_all_see_those_of_the_application(desk):
    mine, seen = contextvars.ContextVar("mine", default="nothing"), []

    @desk.outbox.on_dead_letter
    def hook(event):
        seen.append(mine.get())
        mine.set("of another event")

    kills(desk)
    desk.publish("ill", 1, 2, 3)
    mine.set("the application's")
    with desk.outbox.worker():
        eventually(lambda: owed(desk) == 0 and len(seen) == 3, SOON)
    assert seen == ["the application's"] * 3


def test_a_stop_waits_for_a_hook_call_which_is_not_repeated_for_its_event(desk):
    calls, inside = [], threading.Event()

    @desk.outbox.on_dead_letter
    def hook(event):
        inside.set()
        time.sleep(0.5)
        calls.append(event.payload["number"])

    kills(desk)
    desk.publish("ill", 1)
    with desk.outbox.worker():
        assert inside.wait(BEGUN)
    assert (calls, owed(desk)) == ([1], 0)
    with desk.outbox.worker() as worker:
        assert worker.wait_until_empty(60)
    assert calls == [1]


def test_a_hook_call_that_does_not_return_keeps_no_partition_from_its_next_owner(desk_with, monkeypatch, caplog):
    """Fault kind: nobody stands behind a call that does not return. The next owner tells of the event again."""
    desk, go_on, calls = desk_with(drain_timeout=1), threading.Event(), []
    monkeypatch.setattr(engine_letters, "MAX_HOLD", 0.2)

    @desk.outbox.on_dead_letter
    def hook(event):
        calls.append(event.payload["number"])
        if len(calls) == 1:
            go_on.wait(120)

    kills(desk)
    desk.publish("ill", 1)
    with released_at_the_end(go_on):
        with desk.outbox.worker():
            eventually(lambda: calls, SOON)
            began = time.monotonic()
        assert time.monotonic() - began < 10
        assert desk.conn.execute("select count(*) from partbox.partition where owner is not null").fetchone() == (0,)
        assert "the call will be repeated" in named(caplog, "abandoned")[0].getMessage()
        with desk.outbox.worker():
            eventually(lambda: owed(desk) == 0 and calls == [1, 1], SOON)


def test_abandoned_hook_calls_are_bounded_and_an_application_makes_the_next_when_one_returns(desk, monkeypatch, caplog):
    monkeypatch.setattr(engine_letters, "RETRY", 0.05)
    monkeypatch.setattr(engine_letters, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(dead_letters, "MAX_ABANDONED", 2)
    go_on, calls = threading.Event(), []

    @desk.outbox.on_dead_letter
    def hook(event):
        calls.append(event.payload["number"])
        if len(calls) <= 2:
            go_on.wait(120)

    kills(desk, timeout=0.2)
    for number in range(5):
        desk.publish(f"ill-{number}", number)
    with desk.outbox.worker() as worker, released_at_the_end(go_on):
        eventually(lambda: named(caplog, "dead_letters_stuck"), SOON)
        assert worker._worker.is_stuck  # a worker process ends and is replaced
        desk.publish("well", 10)
        eventually(lambda: desk.numbers("well") == [10], SOON)
        assert len(calls) == 2
        go_on.set()
        eventually(lambda: owed(desk) == 0, SOON)


def test_an_endpoint_of_dead_to_that_accepts_and_does_not_answer_holds_up_no_event(desk, monkeypatch):
    """Fault kind: nobody stands behind a call that does not return."""
    init = Worker.__init__
    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"http://127.0.0.1:{door.getsockname()[1]}/?token=s3cret"
        monkeypatch.setattr(Worker, "__init__", lambda *args, **given: init(*args, **given, dead_to=url))
        kills(desk, timeout=0.2)
        for number in range(4):
            desk.publish(f"ill-{number}", number)
        with desk.outbox.worker(concurrency=1):
            desk.eventually(lambda: owed(desk) == 4)
            desk.publish("well", *range(10, 30))
            eventually(lambda: desk.numbers("well") == [*range(10, 30)], SOON)
            eventually(lambda: (found := sink(desk)) is not None and found.error is not None, SOON)
            assert "the call ran longer than 0.2 s" in sink(desk).error
            assert sink(desk).sink.startswith("dead letters to --dead-to http://127.0.0.1:")
            assert "s3cret" not in sink(desk).sink
