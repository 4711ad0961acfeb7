"""`empty`: everything that is due is delivered, which `drain` and `--until-empty` wait for."""

import pytest

from partbox.db.delivery import instances


def park(conn, record_id, state, blocks, aggregate_id="1"):
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, aggregate_id, event_type,"
        " state, blocks) values ('default', %s, 7, 'Order', %s, 'Placed', %s, %s)",
        (record_id, aggregate_id, state, blocks),
    )


def test_what_is_held_behind_nothing_is_about_to_run(conn):
    assert instances.empty(conn, "partbox", "default")
    park(conn, 2, "held", False)
    assert not instances.empty(conn, "partbox", "default")
    park(conn, 1, "retrying", True, aggregate_id="another")
    assert not instances.empty(conn, "partbox", "default")


@pytest.mark.parametrize("state", ["retrying", "deferred", "dead"])
def test_what_is_held_behind_one_that_is_not_due_is_not_waited_for(conn, state):
    park(conn, 1, state, True)
    park(conn, 2, "held", False)
    assert instances.empty(conn, "partbox", "default")
