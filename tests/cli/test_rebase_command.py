"""`partbox rebase`."""

import io
import json
import signal
import sys
import threading
import time
from types import SimpleNamespace

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.db.operator import rebase

COPIED = "update partbox.meta set xid = '3' where key = 'marker'"
MARKER = "select xmin = xid::xid from partbox.meta where key = 'marker'"


@pytest.fixture
def command(partbox, dsn, conn, monkeypatch):
    """Runs `partbox rebase` on the test's database, which looks as if it came from a dump."""
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    conn.execute(COPIED)
    return lambda *arguments: partbox("rebase", *arguments)


@pytest.fixture
def terminal(monkeypatch):
    """Somebody sits at a terminal and types this."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    return lambda typed: monkeypatch.setattr(sys, "stdin", Terminal(typed))


def late(dsn, conn) -> None:
    """An event that committed after the cursors of `audit` had passed its id, all before the copy was made."""
    outbox = Outbox(dsn)
    conn.execute("delete from partbox.meta where key = 'marker'")
    conn.execute("insert into partbox.meta (key) values ('marker')")
    with psycopg.connect(dsn) as slow:
        outbox.publish(slow, "Step", 1, aggregate_type="A", aggregate_id="1")
        outbox.subscriptions.create("audit", "now")
    conn.execute(COPIED)


def test_rebase_reports_what_it_did_and_refuses_a_schema_that_is_healthy(command, dsn, conn):
    late(dsn, conn)
    first, head, *lines = command("--yes").out.splitlines()
    assert first == "schema 'partbox' is rebased: workers may start"
    assert head.split() == ["subscription", "cursors", "moved", "late", "records", "parked"]
    assert [line.split() for line in lines] == [["audit", "256", "1"], ["default", "256", "0"]]
    assert "schema 'partbox' is healthy" in command("--yes").error
    done = json.loads(command("--force", "--yes", "--json").out)
    assert done == {
        "subscriptions": [
            {"subscription": "audit", "cursors": 256, "parked": 0},
            {"subscription": "default", "cursors": 256, "parked": 0},
        ],
        "records": 0,
        "instances": 0,
        "last_id": 1,
        "next_after": 1,
    }


def test_rebase_asks_for_confirmation_but_not_where_it_refuses_anyway(command, conn, terminal):
    assert "there is no terminal to ask on: repeat the command with --yes" in command().error
    terminal("n\n")
    refused = command()
    assert (refused.code, "nothing was changed" in refused.err) == (1, True)
    assert "Adopt schema 'partbox' of database 't_" in refused.err
    assert conn.execute(MARKER).fetchone() == (False,)
    terminal("y\n")
    assert command().code == 0
    assert conn.execute(MARKER).fetchone() == (True,)
    terminal("")
    assert "is healthy" in command().error


def test_ctrl_c_while_a_rebase_waits_for_a_transaction_changes_nothing(command, dsn, conn, monkeypatch):
    monkeypatch.setattr(rebase, "LOCK_TIMEOUT", "20ms")

    def interrupt(seconds):
        raise KeyboardInterrupt

    with psycopg.connect(dsn) as slow:
        Outbox(dsn).publish(slow, "Step", 1, aggregate_type="A", aggregate_id="1")
        # In its module alone: other threads sleep too.
        monkeypatch.setattr(
            "partbox.operations.rebase.time", SimpleNamespace(sleep=interrupt, monotonic=time.monotonic)
        )
        ran, pid = command("--yes"), slow.info.backend_pid
    assert (ran.code, ran.out) == (130, "")
    waits, ended = ran.err.splitlines()
    assert waits.startswith(f"partbox: waiting: the transaction of pid {pid}, open for ")
    assert ended == "partbox: interrupted: nothing was changed"
    assert conn.execute(MARKER).fetchone() == (False,)


@pytest.fixture
def interruptible():
    """SIGINT interrupts, also where whoever started the tests has it ignored, as a shell does in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_signal_in_the_middle_of_a_statement_rolls_everything_back(command, dsn, conn):
    with psycopg.connect(dsn) as slow:
        Outbox(dsn).publish(slow, "Step", 1, aggregate_type="A", aggregate_id="1")

        def interrupt() -> None:
            found = "select count(*) from pg_locks where relation = 'partbox.record'::regclass and not granted"
            with psycopg.connect(dsn, autocommit=True) as own:
                eventually(lambda: own.execute(found).fetchone() == (1,))
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        ran = command("--yes")
        thread.join()
    assert (ran.code, ran.err.splitlines()[-1]) == (130, "partbox: interrupted: nothing was changed")
    assert conn.execute(MARKER).fetchone() == (False,)
    assert command("--yes").code == 0


def test_rebase_reports_that_it_raised_the_id_sequence(command, conn):
    conn.execute("update partbox.partition set last_id = 900 where partition = 3")
    assert "the id sequence was raised from 0 to 900" in command("--yes").err


def test_a_wrong_timeout_is_refused(command):
    assert "timeout 'soon' is no length of time" in command("--yes", "--timeout", "soon").error
