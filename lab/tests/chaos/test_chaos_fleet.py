"""Nodes that end by themselves are started again; publishers outlive their connections, and wait when told to."""

import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
from waiting import eventually

from partbox_lab.chaos import fleet as fleets
from partbox_lab.chaos.fleet import DatabaseRoute, Fleet
from partbox_lab.chaos.publishers import ChaosPublisher


class Host:
    """In the place of a node: runs until told that it has ended."""

    def __init__(self, name, *_):
        self.name, self.runs, self.leaving = name, True, False

    def ask_to_leave(self):
        self.leaving, self.runs = True, False

    def end(self, timeout):
        return True


@pytest.fixture
def fleet(monkeypatch):
    monkeypatch.setattr(fleets, "Node", Host)
    monkeypatch.setattr(fleets, "RESTART", -1.0)
    place = SimpleNamespace(dsn="dbname=x", schema="partbox", folder=Path(), named=str)
    return Fleet(place, DatabaseRoute(None, "", None, False), 1, 1)


def test_a_node_that_ends_by_itself_is_started_again_on_its_host(fleet):
    host = fleet.join()
    fleet.tend()
    assert (host.node.name, fleet.restarted) == ("node-1.1", 0)
    host.node.runs = False
    fleet.tend()
    assert not host.up
    fleet.tend()
    assert (host.node.name, host.up, fleet.restarted) == ("node-1.2", True, 1)


def test_a_node_that_was_asked_to_leave_or_is_held_down_stays_away(fleet):
    down, left = fleet.join(), fleet.join()
    down.kept = down.node.runs = False
    left.kept = False
    left.node.ask_to_leave()
    for _ in range(3):
        fleet.tend()
    assert (fleet.up(), fleet.restarted) == ([], 0)
    fleet.start(down)
    assert down.kept


def test_no_node_is_restarted_after_the_end_of_the_run(fleet):
    fleet.join()
    fleet.stop(0)
    for _ in range(3):
        fleet.tend()
    assert (fleet.up(), fleet.restarted) == ([], 0)


@pytest.fixture
def publishing(dsn):
    """Runs a publisher that behaves so in its transactions."""
    started = []

    def start(steps, *, doomed: bool) -> ChaosPublisher:
        @contextmanager
        def connect(role):
            with psycopg.connect(dsn, autocommit=True) as conn:
                yield conn

        ledger = SimpleNamespace(declined=lambda count: None, committed=lambda events: None)
        publisher = ChaosPublisher(SimpleNamespace(connect=connect), ledger, "1")
        publisher.pause = (0.0, 0.001)
        publisher.dice = SimpleNamespace(random=lambda: 0.0 if doomed else 1.0, uniform=lambda *_: 0.001)
        publisher.steps = steps
        started.append(publisher)
        publisher.start()
        return publisher

    yield start
    for publisher in started:
        publisher.stopping.set()
        publisher.join()


@pytest.mark.parametrize("doomed", [True, False])
@pytest.mark.filterwarnings("ignore:error ignored in rollback")
def test_a_publisher_outlives_the_loss_of_its_connection_in_any_transaction(publishing, doomed):
    def cut(conn):
        pid = conn.info.backend_pid
        with psycopg.connect(conn.info.dsn, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 5000)", [pid])
        yield []

    publisher = publishing(cut, doomed=doomed)
    eventually(lambda: publisher.interrupted >= 2)
    assert (publisher.error, publisher.is_alive()) == (None, True)


def test_a_held_publisher_begins_no_transaction_until_it_is_released(publishing):
    begun = threading.Semaphore(0)

    def steps(conn):
        begun.release()
        yield []

    publisher = publishing(steps, doomed=False)
    assert begun.acquire(timeout=120)
    publisher.hold(True)
    while begun.acquire(timeout=0.2):
        pass
    publisher.hold(False)
    assert begun.acquire(timeout=120)
