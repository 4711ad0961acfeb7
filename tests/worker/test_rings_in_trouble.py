"""A worker that cannot read goes on to take what it is sent: PostgreSQL's queue of notifications is one for all."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from desk import Desk
from waiting import eventually

from partbox.rules.bell import channel
from partbox.worker.reading.log_reader import LogReader
from partbox.worker.session import SessionFactory
from partbox.worker.waking.listener import Listener

WORD = "what nobody else says"


def fail(error: psycopg.Error, failed: threading.Event) -> Callable[..., Any]:
    def failing(*_: object, **__: object) -> None:
        failed.set()
        raise error

    return failing


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    hear = Listener.heard
    monkeypatch.setattr(Listener, "heard", lambda self, payload: (said.append(payload), hear(self, payload)))
    return said


@pytest.mark.parametrize("trouble", ["a statement fails", "no connection is to be had"])
def test_a_worker_that_cannot_read_still_takes_what_it_is_sent(
    desk_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, heard: list[str], trouble: str
) -> None:
    desk = desk_with(bell="on")
    if desk.conn.info.server_version < 150000:
        pytest.skip("sequences cannot be unlogged before PostgreSQL 15")
    desk.outbox.on("Counted")(desk.note)
    failed = threading.Event()
    with desk.outbox.worker():
        eventually(lambda: len(heard) > 0)  # its own word
        with monkeypatch.context() as patched:
            if trouble == "a statement fails":
                patched.setattr(LogReader, "read", fail(psycopg.errors.InsufficientPrivilege("not allowed"), failed))
            else:
                patched.setattr(SessionFactory, "open", fail(psycopg.OperationalError("nobody answers"), failed))
                desk.conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where pid <> pg_backend_pid() and datname = current_database() "
                    "and application_name not like '%listener'"
                )
            assert failed.wait(30)
            desk.conn.execute("select pg_notify(%s, %s)", [channel("partbox"), WORD])
            eventually(lambda: WORD in heard)
        desk.publish("k", 1)
        eventually(lambda: desk.numbers() == [1])
