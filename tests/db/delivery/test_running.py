"""What a process says of its handlers that run for long, and what everybody reads of it."""

from dataclasses import replace
from uuid import UUID

import psycopg
import pytest
from ownership import SCHEMA, bury, join, worker

from partbox.db.delivery import instances
from partbox.db.delivery.instances import RunningHandler
from partbox.db.inspect import stats
from partbox.db.inspect.stats import Instance

LONG = RunningHandler("ship", "Placed", "Order", "7", 17, 12.0, partition=3, timeout=None)


def told(conn, instance: UUID) -> Instance:
    (found,) = [each for each in stats.read_cluster(conn, SCHEMA, "default").instances if each.instance_id == instance]
    return found


def column(conn, instance: UUID) -> object:
    row = conn.execute("select running from partbox.instance where instance_id = %s", [instance]).fetchone()
    return row[0]


def test_the_age_of_a_noted_running_handler_is_by_the_clock_of_the_database_alone(conn, dsn):
    me, other = join(conn, 2)
    with worker(dsn) as own:
        instances.note_running(own, SCHEMA, me, [LONG, replace(LONG, aggregate_id=None, timeout=900.0)], 0)
    first, second = told(conn, me).running
    assert first == replace(LONG, seconds=first.seconds)
    assert (second.aggregate_id, second.timeout) == (None, 900.0)
    assert first.seconds == pytest.approx(12, abs=5)
    assert (told(conn, other).running, told(conn, me).running_more) == ((), 0)
    said = column(conn, me)
    assert "seconds" not in said[0]
    conn.execute(
        "update partbox.instance set running = jsonb_set(running::jsonb, '{0,since}', to_jsonb(%s))::json"
        " where instance_id = %s",
        [said[0]["since"] - 3_600, me],
    )
    assert told(conn, me).running[0].seconds == pytest.approx(3_612, abs=5)


def test_running_handlers_that_do_not_fit_are_counted_and_none_leaves_a_null_column(conn, dsn):
    (me,) = join(conn)
    with worker(dsn) as own:
        instances.note_running(own, SCHEMA, me, [LONG], 7)
        assert (len(told(conn, me).running), told(conn, me).running_more) == (1, 7)
        instances.note_running(own, SCHEMA, me, [], 0)
    assert column(conn, me) is None
    assert (told(conn, me).running, told(conn, me).running_more) == ((), 0)


def test_a_buried_instance_notes_no_running_handlers(conn, dsn):
    me, other = join(conn, 2)
    bury(conn, [me], known_dead=True)
    with worker(dsn) as own:
        instances.note_running(own, SCHEMA, me, [LONG], 0)
    assert column(conn, other) is None


def test_hostile_texts_are_kept_as_they_are(conn, dsn):
    (me,) = join(conn)
    hostile = "'\"\\ {0} %s %(x)s \x1b[2J \u202e ünï </script>"
    with worker(dsn) as own:
        instances.note_running(
            own, SCHEMA, me, [replace(LONG, handler=hostile, aggregate_id=hostile, event_type=hostile)], 0
        )
    (found,) = told(conn, me).running
    assert (found.handler, found.aggregate_id, found.event_type) == (hostile, hostile, hostile)


def test_a_note_waits_for_no_heartbeat_of_others_and_holds_up_none(conn, dsn):
    me, other = join(conn, 2)
    with worker(dsn) as own, psycopg.connect(dsn) as beating:
        instances.renew_heartbeats(beating, SCHEMA, {other: False})
        instances.note_running(own, SCHEMA, me, [LONG], 0)
    assert told(conn, me).running


def test_two_supervisors_of_one_host_are_told_apart(conn):
    ids = [UUID(int=1), UUID(int=2), None]
    for number, supervisor in enumerate(ids, start=1):
        instances.register_instances(
            conn, SCHEMA, subscription="default", node="web-1", hostname="h", pids=[number], version="0", lease=6,
            supervisor=supervisor,
        )  # fmt: skip
    found = stats.read_cluster(conn, SCHEMA, "default").instances
    assert [(each.pid, each.supervisor) for each in found] == [(3, None), (1, UUID(int=1)), (2, UUID(int=2))]
