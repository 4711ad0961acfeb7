"""The views for monitoring by SQL, and programs that are older than them."""

import psycopg
import pytest
from observing import Conn, consume, publish, subscribe
from planted_records import Planter

from partbox.db.schema.migrate import migrate


def backlog(conn: Conn) -> dict[str, int]:
    return dict(conn.execute("select subscription, count from partbox.backlog").fetchall())


def test_the_backlog_is_what_each_subscription_has_not_consumed(conn):
    subscribe(conn, "audit")
    assert conn.execute("select * from partbox.backlog order by 1").fetchall() == [
        ("audit", 0, None, None),
        ("default", 0, None, None),
    ]
    publish(conn, 3, 5, age=600)
    publish(conn, 200, 2, age=60)
    consume(conn, last_id=5)
    (audit, default) = conn.execute("select * from partbox.backlog order by 1").fetchall()
    assert audit[:2] == ("audit", 7)
    assert default[:2] == ("default", 2)
    ((oldest,),) = conn.execute("select min(created_at) from partbox.record").fetchall()
    assert audit[2] == oldest
    assert (audit[3], default[3]) == (pytest.approx(600, abs=45), pytest.approx(60, abs=45))


def test_a_record_that_commits_late_is_in_the_backlog(conn, dsn):
    with psycopg.connect(dsn) as slow:
        publish(slow, 9, 2)
        publish(conn, 9, 4)
        consume(conn, floor_id=0)
        assert backlog(conn) == {"default": 0}
        slow.commit()
    assert backlog(conn) == {"default": 2}


def test_parked_records_are_not_in_the_backlog_and_dead_ones_have_a_view(conn):
    plant = Planter(conn)
    plant.park("a", "retrying", blocks=True)
    said = {"error": "ValueError: no", "trace": "Traceback: there"}
    record = plant.park("b", "dead", attempts=3, **said, tenant_id="t1", payload={"card": "sesame"})
    assert backlog(conn) == {"default": 0}
    with conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        (dead,) = cursor.execute("select * from partbox.dead").fetchall()
    assert (dead["subscription"], dead["record_id"], dead["event_id"]) == ("default", record, plant.event_id(record))
    assert (dead["event_type"], dead["aggregate_type"], dead["aggregate_id"]) == ("Placed", "Order", "b")
    assert (dead["tenant_id"], dead["attempts"], dead["error"], dead["blocks"]) == ("t1", 3, "ValueError: no", False)
    assert dead["traceback"] == "Traceback: there"
    assert dead["died_at"] < dead["published_at"]  # as planted
    assert "payload" not in dead
    assert "sesame" not in str(dead)


def test_a_dead_record_that_somebody_took_out_of_the_log_is_still_seen(conn):
    plant = Planter(conn)
    record = plant.park("b", "dead")
    conn.execute("delete from partbox.record")
    assert conn.execute("select record_id, event_id from partbox.dead").fetchall() == [(record, None)]


@pytest.mark.parametrize("moment", ["infinity", "-infinity", "4713-01-01 BC"])
def test_no_time_that_a_publisher_gives_breaks_the_backlog(conn, moment):
    publish(conn, 1)
    conn.execute("update partbox.record set created_at = %s", [moment])
    ((age,),) = conn.execute("select oldest_age_seconds from partbox.backlog").fetchall()
    assert isinstance(age, float)


def test_a_writer_only_schema_has_the_views_too(empty_dsn):
    migrate(empty_dsn, writer_only=True)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        publish(conn, 1)
        assert backlog(conn) == {}
        assert conn.execute("select * from partbox.dead").fetchall() == []
