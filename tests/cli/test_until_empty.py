"""`partbox worker --until-empty` calls nothing done that is not: it waits, or its exit code and a line say so."""

import os
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from partbox import Event, Outbox

LATER = datetime(2100, 1, 1, tzinfo=UTC)
SHOP = """
from partbox import Outbox

outbox = Outbox(retry="fixed:1s", circuit="off", max_attempts=2)


@outbox.on("Placed")
@outbox.on("Last", retry="fixed:1h")
@outbox.on("Lost", on_dead="block", max_attempts=1)
def confirm(event):
    if event.payload["fails"] and event.attempt == 1:
        raise ValueError("the first time")
"""


@pytest.fixture
def worker(tmp_path: Path, forks, dsn):
    (tmp_path / "shop.py").write_text(SHOP)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARTBOX_")}

    def run() -> tuple[int, str]:
        words = ("partbox", "worker", "shop:outbox", "--processes", "1", "--until-empty")
        process = forks.start(*words, cwd=tmp_path, env={**kept, "PARTBOX_DSN": dsn})
        _, said = process.communicate()
        return process.wait(), said

    return run


def publish(dsn, event_type, *fails, **fields):
    with psycopg.connect(dsn) as conn:
        Outbox(dsn).publish_many(
            conn,
            [Event(event_type, {"fails": each}, aggregate_type="Order", aggregate_id="1", **fields) for each in fails],
        )


def parked(conn):
    return dict(conn.execute("select state, count(*) from partbox.parked group by state").fetchall())


def test_the_worker_waits_for_a_retry_and_for_all_events_held_behind_it(worker, dsn, conn):
    publish(dsn, "Placed", True, *[False] * 9)
    code, said = worker()
    assert (code, parked(conn)) == (0, {})
    assert "everything that is due is delivered" in said


def test_the_worker_delivers_held_events_after_the_event_before_them_is_gone(worker, dsn, conn):
    publish(dsn, "Last", True, *[False] * 89)
    code, said = worker()
    assert (code, parked(conn)) == (1, {"retrying": 1, "held": 89})
    assert "undelivered events in subscription 'default': 89 held behind others, 1 retrying (" in said
    assert " retrying (the first is due in 60 m)" in said
    assert "everything that is due is delivered" not in said
    conn.execute("delete from partbox.parked where state = 'retrying'")
    assert worker()[0] == 0
    assert parked(conn) == {}


def test_the_worker_ends_at_once_when_only_an_operator_can_help_and_names_the_command(worker, dsn, conn):
    publish(dsn, "Lost", True, False)
    publish(dsn, "Placed", False, available_at=LATER)
    code, said = worker()
    assert (code, parked(conn)) == (1, {"dead": 1, "held": 1, "scheduled": 1})
    assert "in subscription 'default': 1 held behind dead events; `partbox blocked list` names the events" in said
    conn.execute("update partbox.subscription set paused_at = now()")
    code, said = worker()
    assert code == 1
    assert "the subscription is paused: `partbox subscription resume default`, and run this again" in said


def test_the_worker_ends_with_0_when_only_dead_and_scheduled_events_are_left(worker, dsn, conn):
    publish(dsn, "Placed", False, available_at=LATER)
    publish(dsn, "Gone", True)
    code, said = worker()
    assert (code, parked(conn)) == (0, {"dead": 1, "scheduled": 1})
    assert "everything that is due is delivered" in said
