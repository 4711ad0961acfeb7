"""Handlers that run for long are named in the row of their process, whatever they do; others cost nothing."""

import asyncio
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from uuid import uuid4

import psycopg
import pytest
from contexts import context
from waiting import eventually

from partbox.db.delivery import instances
from partbox.db.inspect import stats
from partbox.observe import Observer
from partbox.worker.reports import process_notes
from partbox.worker.reports.process_notes import MAX_NAME_LENGTH, MAX_NAMED, ProcessNote

HOSTILE = "a\x1b[2J\u202e" + "x" * 5_000


@pytest.fixture
def notes(monkeypatch):
    """The number of handlers in each note, from now on. A handler runs for long after 50 ms."""
    monkeypatch.setattr(process_notes, "LONG_RUN", 0.05)
    monkeypatch.setattr(process_notes, "RUNS_INTERVAL", 0.0)
    said: list[int] = []
    note = instances.note_running

    def counting(conn, schema, instance, handlers, more):
        said.append(len(handlers) + more)
        note(conn, schema, instance, handlers, more)

    monkeypatch.setattr(instances, "note_running", counting)
    return said


class Gate:
    """Handlers wait at it until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def wait(self, event) -> None:
        assert self.open.wait(120)

    async def wait_async(self, event) -> None:
        await asyncio.to_thread(self.wait, event)

    def wait_with_a_list(self, events) -> None:
        assert self.open.wait(120)


@contextmanager
def working(desk, gate, **options):
    with desk.outbox.worker(**options) as worker:
        try:
            yield worker
        finally:
            gate.open.set()


def logged(caplog, name):
    return [each for each in caplog.records if getattr(each, "event", None) == name]


def told(desk) -> stats.Instance:
    (found,) = stats.read_cluster(desk.conn, "partbox", "default").instances
    return found


def column(desk) -> list[object]:
    return [row for (row,) in desk.conn.execute("select running from partbox.instance").fetchall()]


@pytest.mark.parametrize("kind", ["sync", "async", "list"])
def test_a_handler_that_does_not_end_is_named_with_its_event_until_it_ends(desk, notes, kind):
    gate = Gate()
    if kind == "list":
        desk.outbox.on_batch("Counted", max_size=5, name="slow")(gate.wait_with_a_list)
    else:
        desk.outbox.on("Counted", name="slow")(gate.wait if kind == "sync" else gate.wait_async)
    desk.publish("k", 1, 2)
    with working(desk, gate):
        (found,) = eventually(lambda: told(desk).running)
        assert (found.handler, found.event_type, found.aggregate_type, found.aggregate_id, found.record_id) == (
            "slow",
            "Counted",
            "Key",
            "k",
            1,
        )
        assert (found.timeout, 0 < found.seconds < 60) == (None, True)
        assert found.partition == desk.conn.execute("select partition from partbox.record").fetchone()[0]
        gate.open.set()
        eventually(lambda: column(desk) == [None])
        eventually(desk.all_done)  # a worker that is told to stop begins nothing more, the second event neither


def test_long_runs_are_noted_when_something_changes_and_not_again_and_again(desk, notes):
    gate, ticks = Gate(), []
    desk.outbox.register(gate.wait, "Counted")
    desk.outbox.observe(Ticks(ticks))
    desk.publish("a", 1)
    with working(desk, gate, concurrency=2):
        eventually(lambda: notes == [1])
        desk.publish("b", 2)
        eventually(lambda: notes == [1, 2])
        seen = len(ticks)
        eventually(lambda: len(ticks) > seen + 3)
        assert notes == [1, 2]
    assert set(notes[2:]) <= {1, 0}


class Ticks(Observer):
    """An observer that is told of each tick."""

    def __init__(self, ticks: list[int]) -> None:
        self._ticks = ticks

    def loaded(self, load) -> None:
        self._ticks.append(load.running)


def test_while_no_handler_runs_for_long_nothing_is_noted(desk, monkeypatch, notes):
    monkeypatch.setattr(process_notes, "LONG_RUN", 60.0)
    ticks: list[int] = []
    gate = Gate()
    desk.outbox.observe(Ticks(ticks))
    desk.outbox.register(desk.note, "Counted")
    desk.outbox.register(gate.wait, "Slow")
    desk.publish("k", *range(20))
    desk.publish("s", 1, event_type="Slow")
    with working(desk, gate, concurrency=2):
        eventually(lambda: ticks.count(1) > 3)
    assert desk.numbers() == list(range(20))
    assert notes == []


def test_a_process_note_is_measured_no_more_often_than_it_may_be_written(monkeypatch):
    """Also if nothing has changed, as in a process that is idle."""
    clock, looks = SimpleNamespace(), list[float]()
    monkeypatch.setattr(process_notes, "time", clock)

    class Looks(ProcessNote):
        def _measure(self, now):
            looks.append(now)
            return ()

        def _write(self, conn, me, found, now):
            raise AssertionError("nothing has changed")

    note = Looks(context(), 2.0)
    note.restart(uuid4())
    for now in (100.0, 100.25, 101.75, 102.0, 102.25):
        clock.monotonic = lambda now=now: now
        note.refresh(None)
    assert looks == [100.0, 102.0]


def test_long_running_handlers_that_do_not_fit_into_the_note_are_counted(desk, notes):
    gate = Gate()
    desk.outbox.register(gate.wait, "Counted")
    for number in range(MAX_NAMED + 3):
        desk.publish(str(number), number)
    with working(desk, gate, concurrency=MAX_NAMED + 3):
        found = eventually(lambda: told(desk) if told(desk).running_more == 3 else None)
        assert len(found.running) == MAX_NAMED
        assert [each.seconds for each in found.running] == sorted((e.seconds for e in found.running), reverse=True)


def test_hostile_names_are_cut(desk, notes):
    gate = Gate()
    desk.outbox.on("Counted", name="h" * 300)(gate.wait)
    desk.publish(HOSTILE, 1)
    with working(desk, gate):
        (found,) = eventually(lambda: told(desk).running)
        assert found.handler == "h" * (MAX_NAME_LENGTH - 1) + "…"
        assert found.aggregate_id == HOSTILE[: MAX_NAME_LENGTH - 1] + "…"


def test_long_runs_are_noted_again_under_a_new_identity_and_on_a_new_connection(desk, notes):
    gate = Gate()
    desk.outbox.register(gate.wait, "Counted")
    desk.publish("k", 1)
    with working(desk, gate):
        first = eventually(lambda: told(desk).running and told(desk)).instance_id
        desk.conn.execute("update partbox.instance set running = null")  # as if a crash had lost it
        desk.conn.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = 'partbox poller'"
        )
        eventually(lambda: told(desk).running)
        desk.conn.execute("delete from partbox.instance")

        def again() -> bool:
            (found,) = stats.read_cluster(desk.conn, "partbox", "default").instances or [None]
            return found is not None and found.instance_id != first and bool(found.running)

        eventually(again)


def test_a_note_that_cannot_be_written_holds_up_nothing_and_comes_later(desk, monkeypatch, notes, caplog):
    gate, refuse = Gate(), threading.Event()
    refuse.set()
    note = instances.note_running

    def refused(*arguments):
        if refuse.is_set():
            raise psycopg.errors.InsufficientPrivilege("permission denied for table instance")
        note(*arguments)

    monkeypatch.setattr(instances, "note_running", refused)
    desk.outbox.register(gate.wait, "Slow")
    desk.outbox.register(desk.note, "Counted")
    desk.publish("s", 1, event_type="Slow")
    with working(desk, gate, concurrency=2):
        (line, *_) = eventually(lambda: logged(caplog, "partbox.not_noted"))
        assert "permission denied" in line.getMessage()
        desk.publish("k", 1, 2, 3)
        eventually(lambda: desk.numbers() == [1, 2, 3])
        refuse.clear()
        eventually(lambda: told(desk).running)
