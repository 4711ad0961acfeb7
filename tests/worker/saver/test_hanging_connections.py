"""A connection that hangs and does not break: it is cut a little after a lease, and all goes on over a new one."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from desk import Desk
from hanging_proxy import Proxy, hanging_proxy
from stopped_backend import stop_at_rest

from partbox import Done, Outbox
from partbox.supervisor.embedded import EmbeddedWorker

POLLER, SAVER, EFFECTS, MEMBERSHIP = "partbox poller", "partbox saver", "partbox effects", "partbox supervisor"
QUICK = {"lease": 2.0, "heartbeat": 0.3, "poll_idle": 0.05}


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with hanging_proxy(dsn) as proxy:
        yield proxy


@pytest.fixture
def desk(dsn: str, proxy: Proxy) -> Iterator[Desk]:
    """Its workers reach the database through the proxy, it does not."""
    desk = Desk(dsn, **QUICK)
    desk.outbox = Outbox(proxy.dsn, **QUICK)
    yield desk
    desk.conn.close()


def publish(desk: Desk, begin: int, count: int = 40) -> list[int]:
    numbers = list(range(begin, begin + count))
    for number in numbers:
        desk.publish(f"k{number % 10}", number)
    return numbers


def all_numbers(desk: Desk) -> list[int]:
    return sorted(number for _, number, _ in desk.seen)


def instances(desk: Desk) -> list[Any]:
    return desk.conn.execute("select instance_id from partbox.instance").fetchall()


def backend(desk: Desk, name: str) -> int:
    row = desk.conn.execute(
        "select pid from pg_stat_activity where datname = current_database() and application_name = %s", [name]
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("name", [POLLER, SAVER, MEMBERSHIP])
def test_a_connection_that_hangs_costs_neither_events_nor_the_lease(desk, proxy, caplog, name):
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        published = publish(desk, 0)
        desk.eventually(desk.all_done)
        before = instances(desk)
        assert proxy.hang(name) >= 1
        published += publish(desk, 100)
        desk.eventually(lambda: len(all_numbers(desk)) == len(published) and desk.all_done())
        desk.eventually(lambda: "hangs" in caplog.text)
        assert instances(desk) == before
    assert all_numbers(desk) == published  # and none twice
    assert "under a new identity" not in caplog.text


@pytest.mark.parametrize("name", [POLLER, SAVER])
@pytest.mark.every_version("sessions that hang")
def test_a_backend_that_is_stopped_costs_no_events(own_server, caplog, name):
    desk = Desk(own_server.dsn, **QUICK)
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        published = publish(desk, 0)
        desk.eventually(desk.all_done)
        stopped = backend(desk, name)
        stop_at_rest(stopped)
        try:
            published += publish(desk, 100)
            desk.eventually(lambda: len(all_numbers(desk)) == len(published) and desk.all_done())
        finally:
            os.kill(stopped, signal.SIGCONT)
    assert all_numbers(desk) == published
    assert "hangs" in caplog.text
    desk.conn.close()


def test_what_is_done_when_the_savers_connection_hangs_is_saved_by_a_graceful_stop_over_another(desk, proxy):
    stop_beside_a_saver_that_hangs(desk, proxy)


def test_a_stop_shorter_than_a_deadline_saves_over_another_connection_too(desk, proxy):
    desk.outbox = Outbox(proxy.dsn, lease=20, drain_timeout=8)
    stop_beside_a_saver_that_hangs(desk, proxy)


def stop_beside_a_saver_that_hangs(desk: Desk, proxy: Proxy) -> None:
    desk.outbox.register(desk.note, "Counted")
    worker: EmbeddedWorker = desk.outbox.worker()
    worker.start()
    published = publish(desk, 0)
    desk.eventually(desk.all_done)
    assert proxy.hang(SAVER) == 1
    published += publish(desk, 100)
    desk.eventually(lambda: len(all_numbers(desk)) == len(published))
    worker.stop()
    with desk.outbox.worker():
        published += publish(desk, 200, 1)
        desk.eventually(desk.all_done)
    assert all_numbers(desk) == published


def test_effects_that_hang_are_cut_and_run_again_while_a_handlers_own_statement_may_take_its_time(desk, proxy, dsn):
    slow, once = threading.Event(), threading.Event()
    desk.conn.execute("create table effect (number integer)")

    def handle(event, connection):
        number = event.payload["number"]
        if number == 1 and not slow.is_set():
            slow.set()
            connection.execute("select pg_sleep(4)")  # longer than our own statements may
        if number == 2 and not once.is_set():
            once.set()
            proxy.hang(EFFECTS)  # in which its savepoint cannot be released
        else:
            connection.execute("insert into effect values (%s)", [number])
        desk.note(event)
        return Done()

    desk.outbox.register(handle, "Counted", transactional=True)
    with desk.outbox.worker():
        desk.publish("k", 1, 2, 3)
        desk.eventually(desk.all_done)
    assert desk.conn.execute("select number from effect order by number").fetchall() == [(1,), (2,), (3,)]
    assert desk.numbers().count(1) <= 2


def test_a_worker_whose_every_connection_hangs_goes_on_when_the_network_does(desk, proxy, caplog):
    """Connecting ends too, whatever phase it hangs in, and is tried again."""
    desk.outbox.register(desk.note, "Counted")
    with desk.outbox.worker():
        published = publish(desk, 0)
        desk.eventually(desk.all_done)
        assert proxy.hang(later=True) >= 3
        published += publish(desk, 100)
        desk.eventually(lambda: "connection timeout expired" in caplog.text)
        proxy.go_on()
        desk.eventually(lambda: set(all_numbers(desk)) == set(published) and desk.all_done())


def test_a_worker_whose_every_connection_hangs_stops_in_time(desk, proxy):
    desk.outbox = Outbox(proxy.dsn, drain_timeout=1, **QUICK)
    desk.outbox.register(desk.note, "Counted")
    worker = desk.outbox.worker()
    worker.start()
    publish(desk, 0)
    desk.eventually(desk.all_done)
    proxy.hang(later=True)
    stopping = threading.Thread(target=worker.stop, daemon=True)
    stopping.start()
    stopping.join(120)
    assert not stopping.is_alive()
