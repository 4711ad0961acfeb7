"""Events share a transaction and none notices: neither settings, nor locks, nor who ends the transaction of all."""

import random
from typing import Any

import psycopg
import pytest
from scripted import KINDS, NOTE, effects, publish, register

from partbox.worker.runners import transaction

pytestmark = pytest.mark.every_version("settings, savepoints, locks, the fate of a transaction")

SEEN = """insert into effect (number, tenant) select {}, concat_ws('|', current_setting('app.tenant', true),
    current_setting('search_path'), current_user, session_user, current_setting('session_replication_role'),
    current_setting('work_mem'), current_setting('statement_timeout'), current_setting('transaction_read_only'))"""
CHANGES = [
    ["select set_config('app.tenant', 'acme', true)"],
    ["set local app.tenant = 'acme'"],
    ["set app.tenant = 'acme'"],
    ["do $$ begin perform set_config('app.tenant', 'acme', true); end $$"],
    ["set local search_path = pg_catalog"],
    ["set search_path = pg_catalog"],
    ["set local role pg_monitor"],
    ["set role pg_monitor"],
    ["set session authorization visitor"],
    ["set session_replication_role = replica"],
    ["set local work_mem = '77MB'"],
    ["set local statement_timeout = 77000"],
    ["set transaction read only"],
    ["create temporary table staged (n int) on commit drop", "insert into staged values (1)"],
    ["create temporary table staged (n int)"],
    ["declare many cursor for select 1"],
    ["declare many cursor for select 1"],
]


@pytest.fixture
def desk(desk_with: Any, monkeypatch: Any) -> Any:
    monkeypatch.setattr(transaction, "MAX_SECONDS", 60.0)  # on a busy machine, too, as many share one as there are
    return desk_with(retry="fixed:0.01", max_attempts=2)


@KINDS
def test_no_setting_of_an_event_holds_for_the_next_event_of_its_transaction(desk: Any, kind: str) -> None:
    """Settings, by statement or function, local or not; roles; temporary tables; cursors. None fails of another's."""
    desk.conn.execute("create role visitor")
    try:
        register(desk, kind, max_attempts=1)
        scripts = [[SEEN.format(0)]]
        for change in CHANGES:
            scripts += [change, [SEEN.format(len(scripts) + 1)]]
        publish(desk, *scripts)
        with desk.outbox.worker():
            desk.eventually(desk.all_done)
        seen = {(tenant or "").strip("|") for (tenant,) in desk.conn.execute("select tenant from effect")}
        assert len(seen) == 1, seen
        assert len(effects(desk)) == len(CHANGES) + 1
        (transactions,) = desk.conn.execute("select count(distinct xid) from effect").fetchone()
        assert transactions <= 2  # the worker may have found the first by itself
    finally:
        desk.conn.execute("drop role visitor")


@KINDS
@pytest.mark.parametrize("end", [["commit"], ["commit", "begin"], ["commit; begin; insert into effect values (77)"]])
def test_events_that_ran_before_one_that_commits_are_done_and_only_that_one_is_charged(
    desk: Any, kind: str, end: list[str]
) -> None:
    runs = register(desk, kind, max_attempts=1)
    publish(desk, *[[NOTE.format(number), *(end if number == 5 else [])] for number in range(10)])
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(5, "dead", 1, False)] and len(effects(desk)) == 10)
        desk.eventually(lambda: desk.done() == 9)
    assert effects(desk) == [*range(10)]
    assert runs == [*range(10)]
    (error,) = desk.conn.execute("select last_error from partbox.parked").fetchone()
    assert "the handler has committed it" in error


@KINDS
def test_an_event_that_rolls_back_the_transaction_is_charged_and_the_others_run_again(desk: Any, kind: str) -> None:
    register(desk, kind, max_attempts=1)
    ends = ["rollback", "begin"]
    publish(desk, *[[NOTE.format(number), *(ends if number == 5 else [])] for number in range(10)])
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(5, "dead", 1, False)] and desk.done() == 9)
    assert effects(desk) == [number for number in range(10) if number != 5]


@KINDS
def test_a_lock_that_is_not_free_is_waited_for_without_the_locks_of_others(desk: Any, dsn: str, kind: str) -> None:
    """What is done is committed while another holds the lock; the event runs again, alone, and is not charged."""
    runs = register(desk, kind, max_attempts=1)
    count = "update counter set n = n + 1 where id = {}"
    publish(desk, [NOTE.format(0), count.format(1)], [NOTE.format(1), count.format(2)], [NOTE.format(2)])
    with psycopg.connect(dsn) as other:
        other.execute(count.format(2))
        with desk.outbox.worker():
            desk.eventually(lambda: effects(desk) == [0])
            other.execute(count.format(1))  # nobody holds it: else this would be a deadlock
            other.commit()
            desk.eventually(desk.all_done)
    assert effects(desk) == [0, 1, 2]
    assert set(runs) == {0, 1, 2}
    assert desk.parked() == []


@KINDS
@pytest.mark.parametrize("code", ["40001", "40P01"], ids=["serialization failure", "deadlock"])
def test_a_conflict_is_charged_only_to_an_event_that_meets_it_repeatedly_when_it_runs_alone(
    desk: Any, kind: str, code: str
) -> None:
    runs = register(desk, kind, max_attempts=1)
    conflict = f"do $$ begin raise exception 'no' using errcode = '{code}'; end $$"
    publish(desk, [NOTE.format(0)], [NOTE.format(1), conflict], [NOTE.format(2)])
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "dead", 1, False)] and desk.done() == 2)
    assert effects(desk) == [0, 2]
    assert runs.count(1) in (3, 4)  # one more unless it was the first of its transaction at once


def test_an_error_of_the_handler_itself_is_charged_at_once(desk: Any) -> None:
    runs = register(desk, "psycopg", max_attempts=1)
    publish(desk, [NOTE.format(0)], ["select 1 / 0"], [NOTE.format(2)])
    with desk.outbox.worker():
        desk.eventually(lambda: desk.parked() == [(1, "dead", 1, False)] and desk.done() == 2)
    assert runs == [0, 1, 2]


def test_workers_that_update_the_same_rows_in_any_order_are_no_deadlock(desk: Any) -> None:
    """Without giving way, two workers with ten rows are in a deadlock all the time: each takes a second."""
    register(desk, "psycopg", max_attempts=1)
    desk.conn.execute("insert into counter select generate_series(4, 10)")
    rows, count = random.Random(7), "update counter set n = n + 1 where id = {}"
    with desk.outbox.worker(), desk.outbox.worker():
        desk.eventually(
            lambda: desk.conn.execute("select count(distinct owner) from partbox.partition").fetchone() == (2,)
        )
        for key in range(40):
            publish(desk, *[[count.format(rows.randint(1, 10))] for _ in range(20)], key=f"k{key}")
        desk.eventually(desk.all_done)
    assert desk.conn.execute("select sum(n) from counter").fetchone() == (800,)
    desk.conn.execute("select pg_stat_clear_snapshot()")
    told = "select deadlocks from pg_stat_database where datname = current_database()"
    assert desk.conn.execute(told).fetchone() == (0,)
