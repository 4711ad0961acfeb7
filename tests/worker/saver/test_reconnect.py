"""A lost connection: what was read is forgotten, what is done or running is not started again."""

import threading

import psycopg
import pytest
from neighbours import BEGUN, SOON, partition, queued, released_at_the_end, terminate
from waiting import eventually

from partbox import Dead
from partbox.db.delivery import cursors, parked
from partbox.protocol.hashing import partition_of

pytestmark = pytest.mark.every_version("lost connections")

SLOW = 3


def connected(desk) -> set[int]:
    rows = desk.conn.execute(
        """select pid from pg_stat_activity
            where datname = current_database() and application_name in ('partbox poller', 'partbox saver')"""
    )
    return {pid for (pid,) in rows}


def test_a_handler_that_runs_while_the_connection_is_lost_is_not_started_again(desk):
    started, release = threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        if event.payload["number"] == SLOW:
            started.set()
            assert release.wait(120)

    desk.outbox.register(handle, "Counted")
    desk.publish("k", *range(10))
    desk.publish(None, SLOW)
    with desk.outbox.worker():
        assert started.wait(120)
        for _ in range(3):
            before = connected(desk)
            terminate(desk)
            desk.eventually(lambda before=before: len(connected(desk) - before) == 2)
            desk.publish("other", 100)
            count = len(desk.numbers("other"))
            desk.eventually(lambda count=count: len(desk.numbers("other")) > count)
        release.set()
        desk.eventually(desk.all_done)
    assert desk.numbers("k") == list(range(10))
    assert desk.numbers(None) == [SLOW]
    assert desk.numbers("other") == [100, 100, 100]


def test_connections_lost_again_and_again_duplicate_nothing(desk):
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        for round in range(6):
            for key in range(40):
                desk.publish(f"k{key}", *range(round * 10, round * 10 + 10))
            terminate(desk)
        desk.eventually(desk.all_done)
    for key in range(40):
        assert desk.numbers(f"k{key}") == list(range(60))


def test_a_parked_event_that_runs_while_the_connection_is_lost_is_not_started_again(desk):
    started, release = threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        if event.attempt == 1:
            raise ValueError("first")
        started.set()
        assert release.wait(120)

    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        assert started.wait(120)
        before = connected(desk)
        terminate(desk)
        desk.eventually(lambda: len(connected(desk) - before) == 2)
        desk.publish("other", 2)
        release.set()
        desk.eventually(lambda: (2 in desk.numbers("other")) and desk.all_done())
    assert desk.numbers("k") == [1, 1]


def test_an_event_that_was_retried_ahead_of_the_saved_cursor_is_not_started_again(desk):
    neighbour = next(f"n{number}" for number in range(10_000) if partition_of(f"n{number}") == partition_of("k"))
    started, release = threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        if event.aggregate_id == neighbour:
            started.set()
            assert release.wait(120)
        elif event.aggregate_id == "k" and event.attempt == 1:
            raise ValueError("first")

    desk.outbox.register(handle, "Counted")
    desk.publish(neighbour, 1)  # holds the cursor of their partition back
    desk.publish("k", 2)
    with desk.outbox.worker(concurrency=2):
        assert started.wait(120)
        desk.eventually(lambda: len(desk.numbers()) == 2 and not desk.parked())
        before = connected(desk)
        terminate(desk)
        desk.eventually(lambda: len(connected(desk) - before) == 2)
        desk.publish("other", 3)
        desk.eventually(lambda: desk.numbers("other"))
        release.set()
        desk.eventually(desk.all_done)
    assert desk.numbers() == [2, 2]
    assert desk.numbers(neighbour) == [1]


@pytest.mark.parametrize("key", ["k", None], ids=["of an aggregate", "of none"])
@pytest.mark.parametrize("attempts", [1, 2], ids=["new", "parked"])
def test_a_handler_that_runs_through_a_lost_connection_and_a_release_is_not_repeated(desk_with, key, attempts):
    desk, started, release = desk_with(retry="fixed:0"), threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        if event.attempt < attempts:
            raise ValueError("not yet")
        started.set()
        assert release.wait(120)

    desk.outbox.register(handle, "Counted")
    desk.publish(key, 1)
    with desk.outbox.worker() as worker:
        assert started.wait(120)
        end_amid_a_lost_connection(desk, worker, release)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert desk.numbers(key) == [1] * attempts


def test_a_list_that_runs_through_a_lost_connection_and_a_release_is_not_repeated(desk):
    started, release = threading.Event(), threading.Event()

    def handle(events):
        for event in events:
            desk.note(event)
        started.set()
        assert release.wait(120)

    desk.outbox.on_batch("Counted", max_size=10)(handle)
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker() as worker:
        assert started.wait(120)
        end_amid_a_lost_connection(desk, worker, release)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert desk.numbers() == [1, 2, 3]


def end_amid_a_lost_connection(desk, worker, release) -> None:
    """End a worker whose only busy partition loses its connection before the handler, which `release` ends."""
    (busy,) = [each for each in worker._worker.engine.partitions.values() if each.running_count]
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    desk.eventually(lambda: busy.is_draining)
    terminate(desk)
    desk.eventually(lambda: busy.incarnation > 1 and busy.is_draining)
    release.set()
    stopping.join()


def test_a_save_that_fails_on_a_live_connection_is_tried_again(desk, caplog):
    desk.conn.execute(
        """create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$;
           create trigger refuse before insert on partbox.parked execute function refuse()"""
    )
    desk.outbox.register(lambda event: desk.note(event) or Dead("no"), "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        before = desk.eventually(lambda: len(connected(desk)) == 2 and connected(desk))
        desk.eventually(lambda: desk.numbers() == [1])
        desk.eventually(lambda: "saving failed" in caplog.text)
        desk.conn.execute("drop trigger refuse on partbox.parked")
        desk.eventually(lambda: desk.states() == {1: "dead"})
        assert connected(desk) == before
    assert desk.numbers() == [1]


# The first event of a list takes the lane over to its new life; the others must not be judged as if they had been read
# in that life, or they are not remembered, and delivered again.
@pytest.mark.parametrize("fails", [False, True], ids=["done", "failed"])
def test_a_list_that_runs_while_the_connection_is_lost_is_not_delivered_again(desk_with, fails):
    desk, lists = desk_with(retry="fixed:0"), []
    inside, release = threading.Event(), threading.Event()

    def take(events):
        lists.append([event.payload["number"] for event in events])
        if len(lists) == 1:
            inside.set()
            release.wait(120)
            if fails:
                raise ValueError("no")

    desk.outbox.on_batch("Counted", max_size=10)(take)
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker() as worker, released_at_the_end(release):
        assert inside.wait(BEGUN)
        terminate(desk)
        eventually(lambda: partition(worker).incarnation > 1 and queued(worker) == 3, SOON)
        release.set()
        eventually(desk.all_done, SOON)
    assert lists[0] == [1, 2, 3]
    assert [number for each in lists[1:] for number in each] == ([1, 2, 3] if fails else [])


# A partition that is being released when the connection is lost is read anew, still draining: it must be touched again,
# or it is never saved, released or read, and stands still until the process ends.
def test_a_release_that_failed_with_its_connection_is_made_again(desk, monkeypatch):
    save, failed = cursors.save, threading.Event()

    def saving(conn, schema, subscription, me, savings, *rest, **more):
        if any(each.is_release for each in savings) and not failed.is_set():
            failed.set()
            terminate(desk)
        return save(conn, schema, subscription, me, savings, *rest, **more)

    monkeypatch.setattr(cursors, "save", saving)
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker() as worker:
        desk.publish("k", 1)
        eventually(desk.all_done, SOON)
        desk.conn.execute("select partbox.subscription_pause('default')")
        assert failed.wait(SOON)
        owned = "select count(*) from partbox.partition where owner is not null"
        try:
            eventually(lambda: desk.conn.execute(owned).fetchone() == (0,), SOON)
        finally:
            worker._settings.__dict__["drain_timeout"] = 0.1


# Under a new identity everything is taken up anew, on connections that live: the saver's is taken away first. If a
# statement then fails, the next try must not think that it is done: the saver would never get a connection again.
def test_a_new_identity_is_taken_up_again_when_a_statement_failed(desk, monkeypatch):
    blocking, failures = parked.list_blocking, []

    def failing(conn, *rest):
        if not failures:
            failures.append(1)
            raise psycopg.errors.QueryCanceled("canceling statement due to statement timeout")
        return blocking(conn, *rest)

    desk.outbox.register(desk.note, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker() as worker:
        eventually(desk.all_done, SOON)
        monkeypatch.setattr(parked, "list_blocking", failing)
        worker._slot.instance = worker._slot.instance  # as if it were another
        eventually(lambda: failures, SOON)
        desk.publish("k", 2)
        try:
            eventually(desk.all_done, SOON)
        finally:
            worker._settings.__dict__["drain_timeout"] = 0.1


# What is done, was read again after a lost connection and still waits for its lane's turn counts as done when the
# partition is released; otherwise the next owner delivers it again.
def test_a_handler_that_outlives_its_connection_and_its_partition_is_not_delivered_again(desk):
    inside, release = threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        inside.set()
        release.wait(120)

    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker() as worker, released_at_the_end(release):
        assert inside.wait(BEGUN)
        terminate(desk)
        eventually(lambda: partition(worker).incarnation > 1 and queued(worker) == 1, SOON)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        eventually(lambda: partition(worker).is_draining, SOON)
        release.set()
        stopping.join()
    with desk.outbox.worker():
        eventually(desk.all_done, SOON)
    assert desk.numbers() == [1]
