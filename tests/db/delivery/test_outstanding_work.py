"""`outstanding`: what is unfinished, and when it runs; `--until-empty` and `wait_until_empty` end by it."""

import psycopg
import pytest

from partbox import Outbox
from partbox.db.delivery import outstanding as work
from partbox.db.delivery.outstanding import UnfinishedEvents

DAY = 86_400.0


def park(conn, record_id, state, *, aggregate_id="1", blocks=True, due=None):
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,"
        " state, blocks, due_at) values ('default', %s, 7, 'Order', %s, 'Placed', %s, %s, now() + %s * interval '1 s')",
        (record_id, aggregate_id, state, blocks, due),
    )


def asked(conn):
    return work.read_outstanding(conn, "partbox", "default")


def left(conn):
    return {each.what: each.events for each in work.count_unfinished(conn, "partbox", "default")}


@pytest.mark.parametrize("state", ["held", "ready"])
def test_parked_events_whose_head_is_gone_count_as_unfinished_and_due_now(conn, state):
    assert asked(conn).is_done
    for record_id in range(2, 91):
        park(conn, record_id, state)
    assert (asked(conn).unfinished, asked(conn).due_in) == (89, 0.0)
    assert not asked(conn).is_done


@pytest.mark.parametrize("state", ["retrying", "deferred"])
def test_an_event_behind_one_that_is_due_later_is_unfinished_and_due_no_sooner(conn, state):
    park(conn, 1, state, due=DAY)
    park(conn, 2, "held")
    park(conn, 3, "ready")
    found = asked(conn)
    assert found.due_in == pytest.approx(DAY, abs=60)
    assert not found.is_done
    assert not found.can_progress(30)
    assert left(conn) == {state: 1, "held behind others": 2}
    assert UnfinishedEvents("held behind others", 2, None) in work.count_unfinished(conn, "partbox", "default")


def test_an_event_behind_a_dead_one_never_runs_by_itself(conn):
    park(conn, 1, "dead")
    park(conn, 2, "held")
    assert asked(conn).due_in is None
    assert not asked(conn).is_done
    assert left(conn) == {"held behind dead events": 1}


def test_an_event_that_blocks_nothing_runs_when_it_is_due(conn):
    park(conn, 1, "retrying", aggregate_id=None, blocks=False, due=-1)
    assert (asked(conn).due_in, asked(conn).is_done) == (0.0, False)


def test_dead_discarded_and_scheduled_events_are_no_work_but_an_owed_dead_letter_hook_is(conn):
    park(conn, 1, "dead", aggregate_id="a")
    park(conn, 2, "dead", aggregate_id="b", blocks=False)
    park(conn, 3, "discarded", blocks=False)
    park(conn, 4, "scheduled", blocks=False, due=DAY)
    found = asked(conn)
    assert found.is_done
    assert not found.can_progress(30)
    assert found.scheduled_in == pytest.approx(DAY, abs=60)
    park(conn, 5, "dead", aggregate_id="c", due=-1)
    assert (asked(conn).is_done, asked(conn).due_in) == (False, 0.0)
    assert left(conn) == {"not told to the dead-letter hook": 1}


def test_unread_records_are_work_and_a_paused_subscription_makes_no_progress(dsn, conn):
    with psycopg.connect(dsn) as other:
        Outbox(dsn).publish(other, "Placed", None)
    assert asked(conn).has_unread
    assert asked(conn).can_progress(30)
    assert left(conn) == {"not read": 1}
    conn.execute("update partbox.subscription set paused_at = now()")
    assert not asked(conn).can_progress(30)
    assert not asked(conn).is_done


def test_a_subscription_that_does_not_exist_has_no_work(conn):
    assert work.read_outstanding(conn, "partbox", "nobody").is_done
