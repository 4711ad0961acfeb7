"""A crash of the server behind PgBouncer, which keeps the worker's connections: ids that were lost come again."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from pooled import PgBouncer, needed
from servers import OwnServer, new_folder
from waiting import eventually

from partbox import Event, Outbox
from partbox.embedded import server_user
from partbox.worker.poller.poller import Poller

pytestmark = needed

PATIENT = {"pooler": True, "lease": 100, "heartbeat": 30}
"""No heartbeat, which would flush the log, comes in between, and nothing is given up while the server is away."""
UNFLUSHED = ("wal_writer_delay = '10s'", "wal_writer_flush_after = '2GB'")
MANY = 40


class Gate:
    """Holds pollers between two of their statements: an idle connection is not closed when its server is gone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._open.set()
        self._arrived = threading.Event()
        wait = Poller._wait

        def held(poller: Poller, *arguments: Any) -> None:
            if not self._open.is_set():
                self._arrived.set()
                self._open.wait()
            wait(poller, *arguments)

        monkeypatch.setattr(Poller, "_wait", held)

    def close(self) -> None:
        self._arrived.clear()
        self._open.clear()
        assert self._arrived.wait(120)

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


@pytest.fixture
def pgbouncer(own_server: OwnServer) -> Iterator[PgBouncer]:
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        for setting in UNFLUSHED:
            conn.execute(f"alter system set {setting}")
        conn.execute("select pg_reload_conf()")
    with new_folder() as folder:
        server_user.make_open_folder(folder)
        pgbouncer = PgBouncer(own_server.dsn, folder, ["postgres"])
        pgbouncer.start()
        try:
            yield pgbouncer
        finally:
            pgbouncer.stop()


def events(dsn: str) -> set[UUID]:
    with psycopg.connect(dsn) as conn:
        return {id for (id,) in conn.execute("select event_id from partbox.record")}


def saved(dsn: str) -> bool:
    with psycopg.connect(dsn) as conn:
        return conn.execute("select from partbox.record_status where status <> 'done' limit 1").fetchone() is None


def publish(dsn: str, count: int) -> set[UUID]:
    """In a transaction that is not flushed."""
    before = events(dsn)
    with psycopg.connect(dsn, options="-c synchronous_commit=off") as conn:
        batch = [Event("Placed", n, aggregate_type="Order", aggregate_id=str(n % 7)) for n in range(count)]
        Outbox(dsn).publish_many(conn, batch)
    return events(dsn) - before


def crash(dsn: str) -> None:
    """Kill a backend, of which the whole server starts anew."""
    with psycopg.connect(dsn) as witness:
        with psycopg.connect(dsn) as victim:
            os.kill(victim.info.backend_pid, signal.SIGKILL)
            victim.close()
        with suppress(psycopg.OperationalError):  # which is disconnected when the server has noticed
            eventually(lambda: witness.execute("select") is None)
    eventually(lambda: answers(dsn))


def answers(dsn: str) -> bool:
    with suppress(psycopg.OperationalError), psycopg.connect(dsn):
        return True
    return False


@contextmanager
def delivering(dsn: str, gate: Gate, seen: set[UUID]) -> Iterator[None]:
    outbox = Outbox(dsn, **PATIENT)
    outbox.register(lambda event: seen.add(event.event_id), "Placed")
    with outbox.worker():
        try:
            yield
        finally:
            gate.open()


def lose_a_tail(dsn: str, gate: Gate, seen: set[UUID]) -> int:
    """Publish, deliver, crash; how many of what was delivered are not there any more. The log may have been flushed."""
    first = publish(dsn, 10)
    eventually(lambda: first <= seen)  # it is connected, and the rest goes faster than the log's next flush comes
    published = publish(dsn, MANY)
    eventually(lambda: published <= seen)
    gate.close()
    eventually(lambda: saved(dsn))  # a save on its way would lose its connection with the server, and tell of that
    crash(dsn)
    return len(published - events(dsn))


def test_events_that_reuse_the_ids_of_events_lost_in_a_crash_are_delivered(own_server, pgbouncer, gate, caplog):
    seen: set[UUID] = set()
    with delivering(pgbouncer.dsn(), gate, seen):
        for _ in range(5):
            if lost := lose_a_tail(own_server.dsn, gate, seen):
                break
            gate.open()
        assert lost > 0
        again = publish(own_server.dsn, MANY + 20)
        gate.open()
        eventually(lambda: again <= seen)
    assert "the server has crashed or was replaced" in caplog.text
    assert events(own_server.dsn) <= seen
