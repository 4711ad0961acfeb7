"""The lines of events, handlers, partitions and workers: their levels and fields, and what must never be in one."""

import logging
import threading
from collections.abc import Iterable
from types import SimpleNamespace

import psycopg
import pytest
from contexts import context
from logged import CANARY, publish
from waiting import eventually

from partbox import DownstreamUnavailable, Outbox
from partbox.observe.logs.log_event import log_event
from partbox.observe.observer import Observer
from partbox.protocol.rows import OwnedPartition
from partbox.worker.engine.partition import Tenure
from partbox.worker.ownership.ownership import Ownership
from partbox.worker.runners import timeouts

log = logging.getLogger("partbox.worker")


def test_a_failed_attempt_is_logged_as_info_and_a_dead_event_as_error_with_its_ids(outbox, deliver, lines):
    @outbox.on("Counted", max_attempts=2, retry="fixed:10ms")
    def fail(event):
        raise ValueError("no such customer")

    publish(outbox, 1, key="Ann")
    deliver(outbox)

    retrying, dead = lines.one("retrying"), lines.one("dead")
    assert (retrying.levelname, retrying.attempts, retrying.delay) == ("INFO", 1, 0.01)
    assert (dead.levelname, dead.attempts, dead.attempt) == ("ERROR", 2, 2)
    assert "is dead after 2 attempts: ValueError: no such customer" in dead.getMessage()
    assert dead.exc_info[0] is ValueError
    assert (dead.subscription, dead.event_type, dead.aggregate_type) == ("default", "Counted", "Key")
    assert "fail" in dead.handler
    with psycopg.connect(outbox.dsn) as conn:
        row = conn.execute("select id, partition, event_id::text from partbox.record").fetchone()
    assert (dead.record_id, dead.partition, dead.event_id) == row


def test_the_line_of_an_event_dead_after_one_attempt_uses_the_singular(outbox, deliver, lines):
    @outbox.on("Counted", max_attempts=1)
    def fail(event):
        raise ValueError("no such customer")

    publish(outbox, 1, key="Ann")
    deliver(outbox)
    assert "is dead after 1 attempt: ValueError" in lines.one("dead").getMessage()


def test_a_payload_that_cannot_be_decoded_is_an_error_of_its_own(outbox, deliver, lines, conn):
    outbox.on("Odd")(lambda event: event.payload)
    conn.execute(
        "insert into partbox.record (partition, event_id, event_type, payload_bytes, content_type)"
        " values (1, gen_random_uuid(), 'Odd', %s, 'application/x-odd')",
        [CANARY.encode()],
    )
    deliver(outbox)

    line = lines.one("decode_error")
    assert line.levelname == "ERROR"
    assert "no codec for content type 'application/x-odd': pass one to Outbox(codecs=…) here too" in line.getMessage()
    assert lines.of("dead") == []
    assert CANARY not in lines.all()


def test_no_payload_header_or_tenant_is_in_any_line(outbox, deliver, lines):
    def fail(event, *_):
        raise ValueError("no")

    async def fail_async(event):
        raise ValueError("no")

    options = {"max_attempts": 2, "retry": "fixed:10ms"}
    outbox.on("Sync", **options)(fail)
    outbox.on("Async", **options)(fail_async)
    outbox.on_batch("Batch", **options)(fail)
    outbox.on("Transactional", transactional=True, **options)(fail)
    kinds = ("Sync", "Async", "Batch", "Transactional")
    for kind in kinds:
        publish(outbox, 1, 2, event_type=kind, headers={"tone": CANARY}, tenant_id=CANARY)
    deliver(outbox)

    assert sorted(line.event_type for line in lines.of("dead")) == sorted(2 * kinds)
    assert CANARY not in lines.all()


def test_a_flood_of_failures_logs_about_ten_retries_but_every_dead_event(outbox, lines):
    @outbox.on("Counted", max_attempts=2, retry="fixed:10ms")
    def fail(event):
        raise ValueError("no")

    publish(outbox, *range(25), key="k")  # of one key, or the circuit would open
    with outbox.worker():
        eventually(lambda: len(lines.of("dead")) == 25)

    said = len(lines.of("retrying"))
    assert 10 <= said < 20


def test_a_line_that_comes_after_held_back_ones_counts_them(lines, monkeypatch):
    now = iter([*[0.0] * 14, 11.0])
    monkeypatch.setattr("partbox.log_rate_limit.time", SimpleNamespace(monotonic=lambda: next(now)))
    for _ in range(15):
        log_event(log, "loop_error", "saving failed: %s", "no", loop="saver")

    said = [line.getMessage() for line in lines.of("loop_error")]
    assert said == ["saving failed: no"] * 10 + ["saving failed: no (and 4 times more since this was last logged)"]


# Handlers and partitions.


def test_a_circuit_says_when_it_opens_and_when_it_closes(outbox, lines):
    down = threading.Event()
    down.set()

    @outbox.on("Counted", retry="fixed:10ms")
    def handle(event):
        if down.is_set():
            raise DownstreamUnavailable("the bank is closed")

    publish(outbox, 1)
    with outbox.worker():
        opened = lines.one("circuit_open")
        down.clear()
        closed = lines.one("circuit_closed")

    assert (opened.levelname, closed.levelname) == ("WARNING", "INFO")
    assert opened.handler == closed.handler
    assert opened.subscription == "default"
    assert "its events are deferred" in opened.getMessage()


def test_a_slow_handler_is_said_once_while_it_runs(outbox, lines, monkeypatch):
    monkeypatch.setattr(timeouts, "SLOW", 0.05)
    gate = threading.Event()
    outbox.on("Counted")(lambda event: gate.wait(120) and None)

    publish(outbox, 1)
    with outbox.worker() as worker:
        line = lines.one("slow_handler")
        publish(outbox, 2)  # the poller looks again and again meanwhile
        eventually(lambda: worker._worker.engine.scheduler.list_running()[1:])
        gate.set()
        worker.wait_until_empty(120)

    assert line.levelname == "WARNING"
    assert line.seconds >= 0.05
    assert "its aggregate waits" in line.getMessage()
    assert len([each for each in lines.of("slow_handler") if each.record_id == line.record_id]) == 1


@pytest.mark.parametrize(("timeout", "seconds"), [(1000.0, 60.0), (30.0, 15.0), (0.2, 1.0)])
def test_a_handler_counts_as_slow_after_a_minute_or_half_its_timeout_but_never_at_once(timeout, seconds):
    assert timeouts._compute_slow_limit(timeout) == seconds


def test_a_brake_is_said_once_an_episode_and_when_it_is_over(dsn, lines):
    outbox = Outbox(dsn, max_parked=5)
    failing, calls = threading.Event(), []
    failing.set()

    @outbox.on("Counted", max_attempts=None)
    def handle(event):
        calls.append(event.id)
        if failing.is_set():
            raise DownstreamUnavailable("no")

    publish(outbox, *range(12), key="k")
    with outbox.worker() as worker:
        line = lines.one("brake")
        eventually(lambda: len(calls) > 2)  # several probes, and ticks, later
        assert len(lines.of("brake")) == 1
        failing.clear()
        assert worker.wait_until_empty(120)
        released = lines.one("brake_released")

    assert (line.levelname, line.partitions, line.max_parked) == ("WARNING", 1, 5)
    assert "nothing new is read in 1 partition (" in line.getMessage()
    assert (released.levelname, released.partitions) == ("INFO", 1)


def test_partitions_of_a_process_that_died_are_taken_over_with_a_warning(outbox, lines, conn):
    conn.execute("update partbox.partition set suspect_until_id = 7 where partition in (3, 4, 200)")
    outbox.register(print, "Counted")

    with outbox.worker():
        line, claimed, planned = lines.one("takeover"), lines.one("claimed"), lines.one("planned")

    assert (line.levelname, line.partitions, line.subscription) == ("WARNING", 3, "default")
    assert "took over 3 partitions (3, 4, 200) of a process that died" in line.getMessage()
    assert (claimed.partitions, planned.partitions, planned.instances) == (256, 256, 1)


def owner_of(numbers: Iterable[int]) -> tuple[Ownership, list[Tenure]]:
    worker = context("host=nowhere")
    worker.engine.claims.adopt([OwnedPartition(number, 1, "1:1:", 0, 0, 0, None) for number in numbers], 0.0)
    return Ownership(worker, lambda floor: None), [owned.tenure for owned in worker.engine.claims.list_tenures()]


def test_a_refusal_of_the_fence_is_one_error_and_one_warning_for_all_its_partitions(lines):
    ownership, tenures = owner_of(range(20))

    ownership.drop_refused(tenures)

    refused, lost = lines.one("fence_rejection"), lines.one("lost")
    assert (refused.levelname, refused.partitions) == ("ERROR", 20)
    assert (lost.levelname, lost.partitions) == ("WARNING", 20)
    assert "(0, 1, 2, 3, 4, 5, 6, 7 and 12 more)" in refused.getMessage()
    assert "unsaved events are delivered again" in lost.getMessage()


def test_partitions_lost_while_they_are_released_are_only_information(lines):
    ownership, tenures = owner_of([7])
    ownership.drain_all()

    ownership.drop_tenures(tenures)

    assert lines.one("lost_draining").levelname == "INFO"
    assert lines.of("lost") == []


# Workers.


def test_a_worker_says_that_it_starts_and_how_it_has_ended(outbox, lines):
    outbox.on("Counted")(lambda event: None)
    with outbox.worker(concurrency=3):
        started = lines.one("worker_started")
        lines.one("claimed")

    stopped = lines.one("worker_stopped")
    assert (started.levelname, started.subscription, started.concurrency) == ("INFO", "default", 3)
    assert (stopped.levelname, stopped.released) == ("INFO", True)


def test_an_observer_that_fails_is_an_error_and_no_flood(outbox, deliver, lines):
    class Broken(Observer):
        def settled(self, event, handler, verdict):
            raise ValueError("I cannot count")

    outbox.observe(Broken())
    outbox.on("Counted")(lambda event: None)
    publish(outbox, *range(50))

    deliver(outbox)

    failures = lines.of("observer_failed")
    assert (failures[0].levelname, failures[0].hook) == ("ERROR", "settled")
    assert len(failures) < 20
