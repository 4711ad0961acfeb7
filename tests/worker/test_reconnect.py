"""A lost connection: what was read is forgotten, what is done or running is not started again."""

import threading

import pytest

from partbox import Dead, partition_of

pytestmark = pytest.mark.every_version("lost connections")

SLOW = 3


def terminate(desk) -> None:
    """End every worker connection of this database."""
    desk.conn.execute(
        """select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and application_name in ('partbox poller', 'partbox saver')"""
    )


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
            assert release.wait(60)

    desk.outbox.register(handle, "Counted")
    desk.publish("k", *range(10))
    desk.publish(None, SLOW)
    with desk.outbox.worker():
        assert started.wait(60)
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
        assert release.wait(60)

    desk.outbox.register(handle, "Counted")
    desk.publish("k", 1)
    with desk.outbox.worker():
        assert started.wait(60)
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
            assert release.wait(60)
        elif event.aggregate_id == "k" and event.attempt == 1:
            raise ValueError("first")

    desk.outbox.register(handle, "Counted")
    desk.publish(neighbour, 1)  # holds the cursor of their partition back
    desk.publish("k", 2)
    with desk.outbox.worker(concurrency=2):
        assert started.wait(60)
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
def test_what_runs_while_the_connection_is_lost_is_not_repeated_though_its_partition_is_let_go_at_once(
    desk_with, key, attempts
):
    desk, started, release = desk_with(retry="fixed:0"), threading.Event(), threading.Event()

    def handle(event):
        desk.note(event)
        if event.attempt < attempts:
            raise ValueError("not yet")
        started.set()
        assert release.wait(60)

    desk.outbox.register(handle, "Counted")
    desk.publish(key, 1)
    with desk.outbox.worker() as worker:
        assert started.wait(60)
        end_amid_a_lost_connection(desk, worker, release)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert desk.numbers(key) == [1] * attempts


def test_a_list_that_runs_while_the_connection_is_lost_is_not_repeated_though_its_partition_is_let_go_at_once(desk):
    started, release = threading.Event(), threading.Event()

    def handle(events):
        for event in events:
            desk.note(event)
        started.set()
        assert release.wait(60)

    desk.outbox.on_batch("Counted", max_size=10)(handle)
    desk.publish("k", 1, 2, 3)
    with desk.outbox.worker() as worker:
        assert started.wait(60)
        end_amid_a_lost_connection(desk, worker, release)
    with desk.outbox.worker():
        desk.eventually(desk.all_done)
    assert desk.numbers() == [1, 2, 3]


def end_amid_a_lost_connection(desk, worker, release) -> None:
    """End a worker whose only busy partition loses its connection before the handler, which `release` ends."""
    (busy,) = [each for each in worker._worker.holdings.partitions.values() if each.running]
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    desk.eventually(lambda: busy.draining)
    terminate(desk)
    desk.eventually(lambda: busy.life > 1 and busy.draining)
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
