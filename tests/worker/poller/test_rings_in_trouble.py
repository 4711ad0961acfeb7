"""A worker that cannot read goes on to take what it is sent: PostgreSQL's queue of notifications is one for all."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from desk import Desk
from full_notification_queue import crowd
from test_waking import bedroom
from waiting import eventually

from partbox.db.delivery import bell
from partbox.protocol.bell import build_channel_name
from partbox.worker.poller.listener import Listener
from partbox.worker.poller.log_poll import LogReader
from partbox.worker.poller.pacing import QUEUE_FULL_PAUSE
from partbox.worker.session import SessionFactory

WORD = "what nobody else says"


def fail(error: psycopg.Error, failed: threading.Event) -> Callable[..., Any]:
    def failing(*_: object, **__: object) -> None:
        failed.set()
        raise error

    return failing


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    hear = Listener.handle_notification
    monkeypatch.setattr(
        Listener, "handle_notification", lambda self, payload: (said.append(payload), hear(self, payload))
    )
    return said


def test_a_worker_sleeps_as_without_a_bell_while_the_notification_queue_is_full(
    crowded_dsn: str, heard: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "partbox.worker")
    with ExitStack() as ending:
        desk = Desk(crowded_dsn, bell="on")
        ending.callback(desk.conn.close)
        desk.outbox.on("Counted")(desk.note)
        with crowd(crowded_dsn):  # it cannot even say its word
            ending.enter_context(desk.outbox.worker())
            eventually(lambda: "notification queue is filling up" in caplog.text)
            desk.publish("k", 1)
            eventually(lambda: desk.numbers() == [1])
            assert heard == []
        eventually(lambda: sleeps(desk))
        with crowd(crowded_dsn):
            desk.publish("k", 2)
            eventually(lambda: desk.numbers() == [1, 2])
            eventually(lambda: not sleeps(desk))
            desk.publish("k", 3)
            eventually(lambda: desk.numbers() == [1, 2, 3])
            assert not sleeps(desk)
        eventually(lambda: sleeps(desk))


def test_a_worker_waits_out_a_full_queue_before_it_raises_the_flag_again(
    crowded_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, raised, raise_flag = [time.monotonic() + QUEUE_FULL_PAUSE], [0], bell.raise_flag

    def counted(*arguments: Any) -> bool | None:
        raised[0] += 1
        return raise_flag(*arguments)

    with bedroom(crowded_dsn) as sleeper:
        sleeper.is_hearing()
        with crowd(crowded_dsn), monkeypatch.context() as patched:
            patched.setattr("partbox.worker.poller.pacing.time", SimpleNamespace(monotonic=lambda: now[0]))
            patched.setattr(bell, "raise_flag", counted)
            pauses = []
            for _ in range(40):
                pauses.append(sleeper.look())
                now[0] += 0.02
            assert raised == [1]
            assert pauses[-1] == sleeper.settings.poll_idle, "as without a bell"
        sleeper.sleeps()


def sleeps(desk: Desk) -> bool:
    """True if the flag is up."""
    up = "select pg_sequence_last_value('partbox.bell') > extract(epoch from clock_timestamp()) * 1000"
    return bool(desk.conn.execute(up).fetchone() == (True,))


@pytest.mark.parametrize("trouble", ["a statement fails", "no connection is to be had"])
def test_a_worker_that_cannot_read_still_receives_its_notifications(
    desk_with: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, heard: list[str], trouble: str
) -> None:
    desk = desk_with(bell="on")
    desk.outbox.on("Counted")(desk.note)
    failed = threading.Event()
    with desk.outbox.worker():
        eventually(lambda: len(heard) > 0)  # its own word
        with monkeypatch.context() as patched:
            if trouble == "a statement fails":
                patched.setattr(LogReader, "read", fail(psycopg.errors.QueryCanceled("it took too long"), failed))
            else:
                patched.setattr(SessionFactory, "open", fail(psycopg.OperationalError("nobody answers"), failed))
                desk.conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity "
                    "where pid <> pg_backend_pid() and datname = current_database() "
                    "and application_name not like '%listener'"
                )
            assert failed.wait(120)
            desk.conn.execute("select pg_notify(%s, %s)", [build_channel_name("partbox"), WORD])
            eventually(lambda: WORD in heard)
        desk.publish("k", 1)
        eventually(lambda: desk.numbers() == [1])
