"""Segments are emptied and dropped beside others: what is in use is left for later, and nobody waits for it."""

import threading
from typing import Any

import psycopg
import pytest
from purgeable import Planted

from partbox import Outbox
from partbox.db.operator import segments as steps
from partbox.db.operator import subscriptions

SLOW = "slow"
DONE = 10_000  # an id beyond every segment


def names(conn: psycopg.Connection[Any]) -> list[str]:
    return [name for (name,) in conn.execute("select name from partbox.segment_ranges()")]


def test_no_segment_is_emptied_while_a_subscription_is_being_created(small, planted: Planted, look, dsn):
    """It holds the lock of purges until it is there, and then it needs everything."""
    planted.record(10)
    planted.consume(DONE)
    with psycopg.connect(dsn) as other:
        other.execute("select partbox.locked('purge', true)")
        assert look().emptied == ()
    subscriptions.create(small, "partbox", SLOW, True, None, None)
    assert look().emptied == ()
    assert planted.left() == [10]


def test_no_segment_is_emptied_while_a_subscription_is_being_replayed(small, planted: Planted, look, dsn):
    planted.record(10)
    planted.consume(DONE)
    small.execute("update partbox.subscription set paused_at = now()")
    with psycopg.connect(dsn) as other:
        other.execute("select partbox.subscription_replay('default', 5, null, false)")
        assert look().emptied == ()
    assert look().emptied == ()
    assert planted.left() == [10]


def test_the_decision_to_empty_a_segment_is_checked_again_under_the_lock(small, planted: Planted, dsn):
    """Between the first look and the lock a record was parked: the lock was waited for, so it is seen."""
    planted.record(10)
    planted.consume(DONE)
    small.execute(
        "create or replace function partbox.segment_busy(tables oid[]) returns boolean language sql as"
        " $$ insert into partbox.parked"
        " (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " values ('default', 10, 0, 'A', 'T', 'held', false); select false $$"
    )
    with psycopg.connect(dsn, autocommit=True) as purger:
        assert steps.empty_segment(purger, "partbox", 0, 0.0) == ("parked", 0)
    assert planted.left() == [10]


@pytest.mark.parametrize(
    "using", ["select from partbox.record_1", "select from partbox.record", "delete from partbox.record where id = 10"]
)
def test_a_segment_that_somebody_uses_is_left_for_later_and_nobody_waits(small, planted: Planted, look, dsn, using):
    planted.record(10)
    planted.consume(DONE)
    with psycopg.connect(dsn) as user, psycopg.connect(dsn, autocommit=True) as other:
        user.execute(using)
        assert steps.empty_segment(other, "partbox", 0, 0.0) == ("busy", 0)
        done = look()
        assert done.emptied == ()
        assert done.dropped == (("record_100",) if using.endswith("record_1") else ())
        user.rollback()
    assert look().emptied == ("record_1",)


def test_a_step_gives_up_at_once_on_a_lock_that_it_cannot_get(small, planted: Planted, look, dsn):
    """Also where nobody was seen to stay: the wait in front of everybody else is 40 ms."""
    planted.record(10)
    planted.consume(DONE)
    small.execute(
        "create or replace function partbox.segment_busy(tables oid[]) returns boolean language sql as 'select false'"
    )
    with psycopg.connect(dsn) as user:
        user.execute("select from partbox.record")
        assert look().emptied == ()
        small.execute("set statement_timeout = '15s'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            small.execute("select partbox.segment_empty(0, 0)")
    assert look().emptied == ("record_1",)


@pytest.mark.parametrize("call", ["segment_empty(0, 0)", "segment_detach(100)", "segment_add(5000000, 7000000)"])
def test_a_backend_killed_in_a_step_has_changed_nothing_and_the_next_maintenance_run_goes_on(
    small, planted: Planted, look, dsn, call
):
    planted.record(10)
    planted.park(planted.record(20), "dead", age=1)
    planted.consume(DONE)
    before = (names(small), planted.left(), planted.meta())
    with psycopg.connect(dsn) as killed:
        killed.execute(f"select partbox.{call}")
        small.execute("select pg_terminate_backend(%s)", [killed.info.backend_pid])
        with pytest.raises(psycopg.OperationalError):
            killed.execute("commit")
    assert (names(small), planted.left(), planted.meta()) == before
    done = look()
    assert done.emptied == ("record_1",)
    assert done.dropped == ("record_100",)
    assert len(done.made) == 3
    assert planted.left() == [20]


def test_an_emptied_segment_that_has_got_a_new_record_is_not_dropped(small, planted: Planted, look):
    assert steps.detach_segment(small, "partbox", 0) is None
    planted.record(110)
    assert steps.detach_segment(small, "partbox", 100) == "filled"
    small.execute("select setval('partbox.record_id_seq', 298)")
    assert steps.detach_segment(small, "partbox", 200) == "open"
    assert "record_200" in names(small)
    planted.record(10)  # drawn before, written after: it falls into the net
    assert small.execute("select count(*) from partbox.record_default").fetchone() == (1,)


def test_an_emptied_segment_that_gets_a_record_while_it_is_being_locked_is_kept(small, planted: Planted):
    small.execute(
        "create or replace function partbox.segment_busy(tables oid[]) returns boolean language sql as"
        " $$ insert into partbox.record (id, partition, event_id, event_type)"
        " values (10, 0, gen_random_uuid(), 'T'); select false $$"
    )
    assert steps.detach_segment(small, "partbox", 0) == "filled"
    assert planted.left() == [10]


def test_publishers_and_polls_go_on_while_segments_are_emptied_and_dropped(small, planted: Planted, look, dsn):
    for lower in range(0, 900, 100):
        planted.record(lower + 10)
    planted.consume(DONE)
    stopped, failed, counts = threading.Event(), [], {"published": 0, "polled": 0}

    def publish() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            outbox = Outbox(dsn)
            while not stopped.is_set():
                with conn.transaction():
                    outbox.publish(conn, "T", {})
                counts["published"] += 1

    def poll() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not stopped.is_set():
                conn.execute("select count(*) from partbox.record where partition = 3 and id > 1000")
                counts["polled"] += 1

    def watched(run) -> None:
        try:
            run()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=watched, args=(each,)) for each in (publish, poll)]
    for thread in threads:
        thread.start()
    dropped: set[str] = set()
    for _ in range(200):
        dropped |= set(look().dropped)
        if len(dropped) == 10:
            break
    stopped.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(dropped) == 10
    assert len(planted.left()) == counts["published"]
