"""The log tells a heartbeat that failed from a plan that failed after it."""

import os
from collections.abc import Iterator

import psycopg
import pytest
from waiting import eventually

from partbox import Outbox
from partbox.db.delivery import instances
from partbox.platform import boottime
from partbox.settings import load
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.worker.slot import DEADLINE, Slot

OUT_OF_ORDER = """
create or replace function partbox.plan(subscription text, members uuid[], seen uuid[], planned uuid[])
returns boolean language plpgsql as
$$begin raise exception 'out of order'; end$$
"""


def names(caplog) -> list[str]:
    return [getattr(record, "event", "") for record in caplog.records]


@pytest.fixture
def membership(dsn) -> Iterator[Membership]:
    made = Membership(load(dsn=dsn), "default", lambda: dsn)
    made.open()
    yield made
    made.close()


def unplanned(conn: psycopg.Connection) -> None:
    """A plan is needed from now on, and fails."""
    conn.execute(OUT_OF_ORDER)
    conn.execute("update partbox.partition set assignee = null")


def test_a_worker_whose_plan_fails_says_so_and_keeps_its_lease(dsn, conn, caplog):
    outbox = Outbox(dsn, heartbeat=0.05)
    outbox.register(print, "Placed")
    with outbox.worker() as worker:
        unplanned(conn)
        eventually(lambda: "partbox.not_planned" in names(caplog))
        before = worker._slot[DEADLINE]
        eventually(lambda: worker._slot[DEADLINE] > before)
        assert "partbox.no_heartbeat" not in names(caplog)
    (said, *_) = [each for each in caplog.records if getattr(each, "event", "") == "partbox.not_planned"]
    assert "heartbeats succeed" in said.getMessage()
    assert "out of order" in said.getMessage()


def test_a_node_whose_plan_fails_counts_as_connected_to_its_database(membership, conn, caplog):
    ward = RegisteredProcess(Slot.create_local(), os.getpid())
    membership.tick([ward])
    unplanned(conn)
    membership._planner.invalidate()
    membership.try_tick([])
    assert names(caplog).count("partbox.not_planned") == 1
    assert "partbox.no_heartbeat" not in names(caplog)
    eventually(lambda: membership.heartbeat_streak.measure_length(boottime()) > 0.0)


def test_a_node_whose_heartbeat_fails_counts_as_disconnected_even_after_a_failed_plan(membership, conn, caplog):
    membership.tick([RegisteredProcess(Slot.create_local(), os.getpid())])
    unplanned(conn)
    membership.try_tick([])
    conn.execute("alter table partbox.instance rename to elsewhere")
    membership.try_tick([])
    assert "partbox.no_heartbeat" in names(caplog)
    assert membership.heartbeat_streak.measure_length(boottime()) == 0.0


@pytest.mark.parametrize("arrives_late", [False, True])
def test_a_registration_whose_answer_is_lost_leaves_no_row_behind(membership, conn, monkeypatch, arrives_late):
    ward = RegisteredProcess(Slot.create_local(), os.getpid())
    register, sent = instances.register_instances, []

    def lose_answer(*given, **columns):
        sent.append((given, columns))
        if not arrives_late:
            register(*given, **columns)
        raise psycopg.OperationalError("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(instances, "register_instances", lose_answer)
        membership.try_tick([ward])
    assert ward.slot.instance is None
    membership.try_tick([ward])
    if arrives_late:
        ((_, *given), columns), *_ = sent
        register(conn, *given, **columns)
        membership.try_tick([ward])
    assert conn.execute("select instance_id from partbox.instance").fetchall() == [(ward.slot.instance,)]
    assert conn.execute("select distinct assignee from partbox.partition").fetchall() == [(ward.slot.instance,)]
