"""From a version of the schema to the next: what it holds stays, and a program of before goes on or stops.

The program of before is the one of today: its schema is migrated by one that knows a migration more.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import next_migration
import psycopg
import pytest
from planted_records import Planter
from psycopg import sql
from waiting import eventually

from partbox import Event, Outbox
from partbox.db import connect
from partbox.db.schema import migrate as migrations
from partbox.errors import PartboxError, SchemaError

Conn = psycopg.Connection[Any]
STATES = ("retrying", "deferred", "scheduled", "held", "dead", "ready")
KEPT = ("record", "partition", "subscription", "parked", "idempotency", "inbox")


@pytest.fixture
def filled(dsn: str) -> Iterator[Conn]:
    """With records that are done, parked in every state, and not read."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        planter = Planter(conn)
        for state in STATES:
            due = 3_600.0 if state in ("retrying", "deferred", "scheduled") else None
            blocks = state not in ("scheduled", "dead")
            planter.park(state, state, blocks=blocks, attempts=1, due=due, started=state == "ready")
        for number in range(20):
            planter.publish(str(number), idempotency_key=f"key {number}")
        conn.execute("insert into partbox.inbox (consumer, event_id) values ('mail', gen_random_uuid())")
        yield conn


def upgrade(dsn: str) -> None:
    """Migrate by the program to come, in a process of its own."""
    subprocess.run([sys.executable, "-W", "error", next_migration.__file__, dsn], check=True)


def contents(conn: Conn) -> dict[str, list[Any]]:
    statement = "select jsonb_strip_nulls(to_jsonb(t)) from {} t order by 1"  # columns that are new are null
    return {name: conn.execute(sql.SQL(statement).format(sql.Identifier("partbox", name))).fetchall() for name in KEPT}


def cut(conn: Conn) -> None:
    """End every connection but this one, so that workers look at the schema again."""
    conn.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and application_name like 'partbox %%'"
    )


@contextmanager
def application(dsn: str) -> Iterator[Conn]:
    with psycopg.connect(dsn) as conn, conn.transaction():
        yield conn


def test_a_migration_keeps_all_that_the_version_before_held(dsn: str, filled: Conn) -> None:
    before = contents(filled)
    assert len(before["parked"]) == len(STATES)
    upgrade(dsn)
    assert contents(filled) == before
    migrations.check_schema_version(filled)


def test_an_original_schema_does_not_become_a_copy_by_an_upgrade(dsn: str, filled: Conn) -> None:
    connect.check_server(filled, "partbox")
    upgrade(dsn)
    connect.check_server(filled, "partbox")
    with pytest.raises(PartboxError, match="is healthy"):
        Outbox(dsn).rebase()


def test_a_logical_copy_stays_a_copy_after_an_upgrade_until_it_is_rebased(dsn: str, filled: Conn) -> None:
    filled.execute("update partbox.meta set xid = '3' where key = 'marker'")
    filled.execute("delete from partbox.meta where key = 'marker_witness'")
    upgrade(dsn)
    with pytest.raises(SchemaError, match="`partbox rebase` adopts the schema"):
        connect.check_server(filled, "partbox")
    Outbox(dsn).rebase()
    connect.check_server(filled, "partbox")


def test_a_program_refuses_a_schema_older_than_its_own_and_names_the_remedy(
    dsn: str, filled: Conn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "migrations", next_migration.known)
    before, outbox = contents(filled), Outbox(dsn)
    outbox.register(print, "*")
    with pytest.raises(SchemaError, match="run `partbox migrate`"), outbox.worker():
        pass
    assert contents(filled) == before


def test_an_old_worker_goes_on_while_the_schema_is_migrated_and_nothing_is_lost(dsn: str, filled: Conn) -> None:
    outbox, delivered = Outbox(dsn), []
    outbox.register(lambda event: delivered.append(str(event.event_id)), "*")
    (waiting,) = filled.execute(
        "select count(*) from partbox.parked where due_at is null and state <> 'dead'"
    ).fetchone()
    with outbox.worker():
        eventually(lambda: len(delivered) == 20 + waiting)
        upgrade(dsn)
        with application(dsn) as conn:
            outbox.publish_many(conn, [_event(number) for number in range(50)])
        eventually(lambda: len(delivered) == 70 + waiting)
        cut(filled)
        with application(dsn) as conn:
            outbox.publish_many(conn, [_event(number) for number in range(50)])
        eventually(lambda: len(set(delivered)) == 120 + waiting)
    left = filled.execute("select state from partbox.parked order by state").fetchall()
    assert left == [("dead",), ("deferred",), ("retrying",), ("scheduled",)]
    assert filled.execute("select count(*) from partbox.record_status where status = 'pending'").fetchone() == (0,)


def test_an_old_worker_stops_with_the_remedy_when_a_migration_breaks_it_and_nothing_is_lost(
    dsn: str, filled: Conn
) -> None:
    outbox, delivered = Outbox(dsn), []
    outbox.register(lambda event: delivered.append(event.id), "*")
    with outbox.worker() as worker:
        assert worker.wait_until_empty(120) is False, "a deferred and a retrying one are due tomorrow"
        upgrade(dsn)
        filled.execute("update partbox.meta set value = '99' where key in ('schema_version', 'breaking_version')")
        cut(filled)
        with pytest.raises(SchemaError, match=r"needs a program for version 99 or newer; .*: upgrade partbox"):
            eventually(lambda: worker.wait_until_empty(1) is None)
    seen = len(delivered)
    with application(dsn) as conn:
        outbox.publish(conn, _event(1))
    assert filled.execute("select count(*) from partbox.record_status where status = 'pending'").fetchone() == (1,)
    assert len(delivered) == seen


def _event(number: int) -> Event:
    return Event("Counted", number, aggregate_type="Key", aggregate_id=str(number % 7))
