"""A callable that gives the DSN is the application's, and may fail: the vault is away, a token has ended."""

import asyncio
import logging
import re
import threading
from typing import Any

import psycopg
import pytest
from parcels import pack, unpack
from waiting import eventually

from partbox import Outbox
from partbox.cli.shell.output import format_error_line
from partbox.db.connect import resolve_dsn
from partbox.errors import SettingsError

SECRET = "Zq7KxXw9Jv"


class NoWords(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Vault:
    """Gives a DSN, or whatever `trouble` says."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.trouble: Any = None
        self.asked = 0

    def __call__(self) -> Any:
        self.asked += 1
        if isinstance(self.trouble, BaseException):
            raise self.trouble
        return self.dsn if self.trouble is None else self.trouble()


TROUBLES = [
    RuntimeError(f"vault is away: postgresql://u:{SECRET}@h/d"),
    NoWords(),
    SystemExit(3),
    asyncio.CancelledError(),
    SettingsError("of the application's own"),
    lambda: None,
    lambda: "",
    lambda: 7,
    lambda: b"host=h",
    lambda: f"postgresql://u:{SECRET}%zz@h/d",
    lambda: "embedded:/proc/no/such/folder",
]


def cut(conn: psycopg.Connection, name: str = "partbox%") -> None:
    """Every connection of partbox, or of that name, to this database ends."""
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and application_name like %s",
        [name],
    )


@pytest.mark.parametrize("trouble", TROUBLES, ids=[repr(each)[:24] for each in TROUBLES])
def test_a_faulty_dsn_callable_makes_no_connection_and_one_clear_line_without_secrets(trouble):
    """None and other nothings would be libpq's defaults: the local server, as the user who runs it."""
    vault = Vault("")
    vault.trouble = trouble
    outbox = Outbox(vault)
    outbox.register(print, "Placed")
    for use in (lambda: resolve_dsn(vault), lambda: outbox.dsn, outbox.drain, outbox.dead.count, outbox.purge):
        with pytest.raises(psycopg.OperationalError, match=r"the DSN callable .*Vault") as failed:
            use()
        line = format_error_line(failed.value)
        assert line.startswith("cannot use the database: the DSN callable ")
        assert "\n" not in line
        assert SECRET not in line


def test_the_error_names_the_dsn_callable_and_says_what_it_must_return():
    def forgotten():
        """Returns nothing."""

    with pytest.raises(psycopg.OperationalError) as failed:
        resolve_dsn(forgotten)
    assert re.fullmatch(
        r"the DSN callable returned a NoneType \(.*forgotten, .*test_dsn_callables\.py:\d+\): it must return a text "
        r"such as postgresql://user@host/database",
        str(failed.value),
    )


def test_ctrl_c_within_a_dsn_callable_is_passed_on():
    vault = Vault("")
    vault.trouble = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        resolve_dsn(vault)


def test_a_dsn_callable_can_be_pickled_for_worker_processes():
    given = Outbox(lambda: "host=h")._database.resolve_dsn()
    assert unpack(pack(given))() == "host=h"


@pytest.mark.parametrize(
    "trouble",
    [RuntimeError(f"vault is away, password={SECRET}"), SystemExit(3), lambda: None],
    ids=["error", "exit", "none"],
)
def test_a_worker_whose_callable_fails_for_a_while_delivers_afterwards_and_repeats_nothing(dsn, conn, caplog, trouble):
    caplog.set_level(logging.INFO)
    vault, seen, second = Vault(dsn), [], threading.Event()
    outbox = Outbox(vault)

    @outbox.on("Placed")
    def placed(event):
        seen.append(event.payload["n"])
        if event.payload["n"] == 1:
            second.set()

    def publish(n):
        with psycopg.connect(dsn) as own:
            outbox.publish(own, "Placed", {"n": n}, aggregate_id="a")

    with outbox.worker() as worker:
        publish(0)
        eventually(lambda: seen == [0], interval=0.01)
        vault.trouble, asked = trouble, vault.asked
        cut(conn)
        publish(1)

        def said() -> bool:
            loggers = {record.name for record in caplog.records if "the DSN callable" in record.getMessage()}
            return {"partbox.worker", "psycopg.pool"} <= loggers and vault.asked > asked + 3

        eventually(said, interval=0.02)
        vault.trouble = None
        assert second.wait(120)
        assert worker.wait_until_empty(120)
        assert seen == [0, 1]
    assert SECRET not in caplog.text


def test_a_dsn_callable_that_hangs_at_a_reconnect_costs_no_lease_and_delays_delivery_only(dsn, conn):
    """Only the thread that asked waits. The lease is renewed on a connection that is there."""
    vault, seen, go_on = Vault(dsn), [], threading.Event()
    outbox = Outbox(vault)
    outbox.on("Placed")(lambda event: seen.append(event.payload["n"]))

    def publish(n):
        with psycopg.connect(dsn) as own:
            outbox.publish(own, "Placed", {"n": n}, aggregate_id="a")

    with outbox.worker() as worker:
        publish(0)
        eventually(lambda: seen == [0], interval=0.01)
        asked, vault.trouble = vault.asked, lambda: dsn if go_on.wait(120) else None
        try:
            cut(conn, "partbox poller")
            eventually(lambda: vault.asked > asked, interval=0.01)
            publish(1)
            beat = "select max(heartbeat_at), count(*) from partbox.instance"
            before = conn.execute(beat).fetchone()
            eventually(lambda: conn.execute(beat).fetchone() > before, interval=0.05)
            assert conn.execute("select count(distinct owner) from partbox.partition").fetchone() == (1,)
        finally:
            vault.trouble = None
            go_on.set()
        assert worker.wait_until_empty(120)
    assert seen == [0, 1]
