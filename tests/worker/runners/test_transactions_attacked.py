"""Transactional handlers under attack: by their own code, by the connection, by other owners, by slow neighbours."""

import threading
from contextlib import contextmanager

import psycopg
import pytest
from variants import named
from waiting import eventually

from partbox import Event, partition_of
from partbox.worker.engine.transaction_queue import TransactionQueue
from partbox.worker.runners import transactor

pytestmark = pytest.mark.every_version("transactions, savepoints, lost connections")

HOUR = 3_600.0
PARKED_OF = "select from partbox.parked where aggregate_id = %s and state = 'dead'"


@pytest.fixture
def desk(desk_with):
    desk = desk_with(retry="fixed:0.01", max_attempts=2)
    desk.conn.execute("create table effect (number int, key text, id bigint generated always as identity)")
    return desk


def write(event, conn):
    conn.execute("insert into effect (number, key) values (%s, %s)", [event.payload["number"], event.aggregate_id])


def effects(desk, key):
    return [number for (number,) in desk.conn.execute("select number from effect where key = %s order by id", [key])]


def cut(desk, connection):
    desk.conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = %s", [f"partbox {connection}"]
    )


def same_partition(key, name):
    """Another key of the same partition."""
    return next(f"{name}{n}" for n in range(10_000) if partition_of(f"{name}{n}") == partition_of(key))


def closes(conn):
    conn.close()


def leaves_the_context(conn):
    with conn:  # as if it were its own: psycopg closes it
        raise ValueError("broken")


def says(*statements):
    def misbehave(conn):
        for statement in statements:
            conn.execute(statement)

    return misbehave


RUINS = {
    "rollback": (says("rollback"), "the transaction of the handler is gone"),
    "rollback and begin": (says("rollback", "begin"), "the transaction of the handler is gone"),
    "terminate": (says("select pg_terminate_backend(pg_backend_pid())"), "the transaction of the handler is gone"),
    "close": (closes, "the transaction of the handler is gone"),
    "with conn": (leaves_the_context, "the transaction of the handler is gone: broken"),
    "commit()": (lambda conn: conn.commit(), "Explicit commit() forbidden"),
    "rollback()": (lambda conn: conn.rollback(), "Explicit rollback() forbidden"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("names", [list(RUINS)[:4], list(RUINS)[4:]], ids=["what ends it", "what else"])
def test_a_handler_that_ruins_the_transaction_is_charged_and_takes_nobody_with_it(desk, names):
    """They come one after the other to the same worker, each with an aggregate and a neighbour of its own."""

    def handle(event, conn):
        write(event, conn)
        if event.payload["number"] == 5:
            RUINS[event.aggregate_id][0](conn)

    def check(name, text):
        neighbour = f"beside {name}"
        with desk.conn.transaction():
            desk.publish(name, *range(10))
            desk.publish(neighbour, *range(10, 20))
        desk.eventually(lambda: len(effects(desk, name)) == 9 and len(effects(desk, neighbour)) == 10)
        desk.eventually(lambda: desk.conn.execute(PARKED_OF, [name]).fetchall())
        assert effects(desk, name) == [number for number in range(10) if number != 5]
        assert effects(desk, neighbour) == list(range(10, 20))
        (error,) = desk.conn.execute("select last_error from partbox.parked where aggregate_id = %s", [name]).fetchone()
        assert text in error

    desk.outbox.register(handle, "Counted", transactional=True)
    with desk.outbox.worker():
        for number, name in enumerate(names, 1):
            with named(name):
                check(name, RUINS[name][1])
                assert desk.parked() == [(5, "dead", 2, False)] * number


def test_a_handler_that_commits_is_charged(desk):
    """Its committed effect stays, and may be there again: nothing can help that. But the others go on."""

    def handle(event, conn):
        write(event, conn)
        if event.payload["number"] == 5:
            conn.execute("commit")

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", *range(10))
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(5, "dead", 2, False)] and 9 in effects(desk, "k"))
    assert set(effects(desk, "k")) == set(range(10))


def test_raising_rollback_is_a_failure_like_any_other(desk):
    def handle(event, conn):
        write(event, conn)
        raise psycopg.Rollback

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", 1)
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "dead", 2, False)])
    assert effects(desk, "k") == []


def test_a_connection_that_breaks_once_under_a_handler_is_not_the_events_fault(desk):
    broken = []

    def handle(event, conn):
        write(event, conn)
        if not broken:
            broken.append(True)
            conn.execute("select pg_terminate_backend(pg_backend_pid())")

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", *range(5))
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert effects(desk, "k") == list(range(5))
    assert desk.parked() == []


def test_the_event_that_fails_the_commit_is_found_by_one_search(desk, caplog):
    desk.conn.execute("create table parent (id int primary key)")
    desk.conn.execute("create table child (id int references parent deferrable initially deferred)")

    def handle(event, conn):
        write(event, conn)
        if event.payload["number"] == 60:
            conn.execute("insert into child values (1)")

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", *range(80))
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(60, "dead", 2, False)])
        desk.eventually(lambda: len(effects(desk, "k")) == 79)
    assert effects(desk, "k") == [number for number in range(80) if number != 60]
    failures = [record for record in caplog.records if getattr(record, "event", "") == "partbox.transaction_failed"]
    assert 0 < len(failures) <= 6  # two attempts: each a transaction of many, perhaps of fewer, and the one alone


def test_a_partition_lost_in_the_middle_leaves_no_effect_twice(desk):
    inside, go_on = threading.Event(), threading.Event()

    def handle(event, conn):
        write(event, conn)
        if event.payload["number"] == 3:
            inside.set()
            go_on.wait(120)

    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("k", *range(6))
    desk.publish("other", *range(6))
    with desk.outbox.worker():
        desk.eventually(inside.is_set)
        desk.conn.execute(
            "update partbox.partition set epoch = epoch + 1, owner = null where partition = %s", [partition_of("k")]
        )
        go_on.set()
        desk.eventually(desk.all_done)
    assert effects(desk, "k") == list(range(6))
    assert effects(desk, "other") == list(range(6))


def test_a_backlog_of_one_aggregate_does_not_make_the_others_wait_for_its_end(desk, monkeypatch):
    """A transaction has five events at most here: a backlog of twenty turns, and the others wait from the first on."""
    inside, go_on, add, waiting = threading.Event(), threading.Event(), TransactionQueue.add, set()
    others = [f"k{number}" for number in range(20)]

    def handle(event, conn):
        inside.set()
        go_on.wait(120)
        write(event, conn)

    def adding(self, lane):
        add(self, lane)
        waiting.add(lane.queue[0].aggregate_id)

    monkeypatch.setattr(TransactionQueue, "add", adding)
    monkeypatch.setattr(transactor, "MAX_EVENTS", 5)
    desk.outbox.register(handle, "Counted", transactional=True)
    desk.publish("hot", *range(100))
    try:
        with desk.outbox.worker():
            desk.eventually(inside.is_set)
            for number, key in enumerate(others):
                desk.publish(key, number)
            desk.eventually(lambda: waiting >= {*others})
            go_on.set()
            eventually(desk.all_done, moves=desk.done)
    finally:
        go_on.set()
    keys = [key for (key,) in desk.conn.execute("select key from effect order by id")]
    assert effects(desk, "hot") == list(range(100))
    assert sorted(keys) == sorted(["hot"] * 100 + others)
    until_all_had_theirs = max(keys.index(key) for key in others)
    assert keys[:until_all_had_theirs].count("hot") <= 50


@contextmanager
def slow_neighbour(desk, key):
    """A plain event of another aggregate of its partition that runs until the block ends; the worker runs meanwhile."""
    inside, go_on = threading.Event(), threading.Event()

    def wait(event):
        inside.set()
        go_on.wait(120)

    desk.outbox.register(wait, "Slow")
    desk.publish(same_partition(key, "slow"), 0, event_type="Slow")
    try:
        with desk.outbox.worker(concurrency=3):
            desk.eventually(inside.is_set)
            yield go_on
            go_on.set()
            desk.eventually(desk.all_done)
    finally:
        go_on.set()


def test_a_slow_event_is_parked_for_transactions_of_its_partition_even_while_others_are_busy(desk):
    stop = threading.Event()

    def busy(event, conn):
        if not stop.is_set():
            desk.outbox.publish(conn, Event("Busy", {}, aggregate_type="Key", aggregate_id=event.aggregate_id))

    desk.outbox.register(busy, "Busy", transactional=True)
    desk.outbox.register(write, "Counted", transactional=True)
    with slow_neighbour(desk, "k"):
        try:
            for number in range(150):
                desk.publish(f"busy{number}", number, event_type="Busy")
            desk.publish("k", 1)
            desk.eventually(lambda: effects(desk, "k") == [1])
        finally:
            stop.set()


def test_a_late_event_has_its_effect_once_though_the_cursor_cannot_pass_it_yet(desk, dsn):
    desk.outbox.register(write, "Counted", transactional=True)
    desk.outbox.register(desk.note, "Plain")
    with psycopg.connect(dsn) as late, slow_neighbour(desk, "k"):
        desk.outbox.publish(late, "Counted", {"number": 9}, aggregate_type="Key", aggregate_id="k")
        beyond = same_partition("k", "beyond")
        desk.publish(beyond, 10, event_type="Plain")
        desk.eventually(lambda: desk.numbers(beyond) == [10])
        late.commit()
        desk.eventually(lambda: 9 in desk.states() or effects(desk, "k"))
        cut(desk, "poller")
        desk.eventually(lambda: effects(desk, "k"))
        cut(desk, "poller")
    assert effects(desk, "k") == [9]


def test_a_late_event_waits_for_earlier_events_of_its_key_even_when_it_was_parked_first(desk, dsn):
    """1 was published before 9, but waits for its turn; 9 comes late, and is parked; then everything is read anew."""
    desk.outbox.register(write, "Counted", transactional=True)
    desk.outbox.register(desk.note, "Plain")
    with psycopg.connect(dsn) as late, slow_neighbour(desk, "k"):
        desk.publish("k", 1)
        desk.outbox.publish(late, "Counted", {"number": 9}, aggregate_type="Key", aggregate_id="k")
        beyond = same_partition("k", "beyond")
        desk.publish(beyond, 10, event_type="Plain")
        desk.eventually(lambda: desk.numbers(beyond) == [10])
        late.commit()
        desk.eventually(lambda: 9 in desk.states() or effects(desk, "k"))
        cut(desk, "poller")
    assert effects(desk, "k") == [1, 9]
