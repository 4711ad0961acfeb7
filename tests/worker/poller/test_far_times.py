"""A publisher may write any time that PostgreSQL has: year 20000, infinity, before Christ. No worker cares."""

import itertools
import json

import pytest
from waiting import eventually

from partbox import Dead, Outbox
from partbox.cli import main

pytestmark = pytest.mark.every_version("times that an interval cannot hold")

LATER = ["infinity", "20000-01-01", "294276-12-31", "9999-12-31 23:59:59.999999Z"]
TIMES = [*LATER, "-infinity", "4713-01-01 BC", "2020-01-01"]


def insert(conn, name, available=None, occurred=None, created=None, key=None):
    conn.execute(
        """insert into partbox.record (partition, event_id, event_type, aggregate_type, aggregate_id, payload,
                                       available_at, occurred_at, created_at)
           values (5, gen_random_uuid(), %s, 'a', %s, '{}', %s, coalesce(%s, now()), coalesce(%s, now()))""",
        [name, key, available, occurred, created],
    )


@pytest.fixture
def run(capsys):
    """Runs a command; what it prints."""

    def run(*arguments):
        with pytest.raises(SystemExit) as exit:
            main(arguments)
        out, err = capsys.readouterr()
        assert exit.value.code in (0, 1), (arguments, err)
        assert err == "", (arguments, err)
        return out

    return run


@pytest.fixture
def outbox(dsn):
    outbox, seen = Outbox(dsn), []

    @outbox.on("Timed")
    def timed(event):
        seen.append((event.id, event.occurred_at.isoformat(), event.created_at.isoformat(), repr(event)))

    @outbox.on("Dying")
    def dying(event):
        assert event.occurred_at.year
        return Dead("at once")

    outbox.seen = seen
    return outbox


def test_an_event_of_any_time_is_delivered_or_waits_and_no_tick_fails(dsn, conn, outbox, caplog):
    for available in TIMES:
        insert(conn, "Timed", available)
    for occurred, created in itertools.product(TIMES, TIMES):
        insert(conn, "Timed", None, occurred, created, key=f"{occurred}/{created}")
    for created in TIMES:
        insert(conn, "Dying", None, created, created)
    assert outbox.drain(timeout=30)
    assert len(outbox.seen) == len(TIMES) - len(LATER) + len(TIMES) ** 2
    assert conn.execute("select state, count(*) from partbox.parked group by 1 order by 1").fetchall() == [
        ("dead", len(TIMES)),
        ("scheduled", len(LATER)),
    ]
    assert (
        conn.execute("select distinct due_at from partbox.parked where state = 'scheduled'").fetchall()
        == conn.execute("select timestamptz '9999-12-30 00:00Z'").fetchall()
    )
    insert(conn, "Timed", key="behind them")
    assert outbox.drain(timeout=30)  # the partition was handed over, with rows that are due in so far a time
    assert len(outbox.seen) == len(TIMES) - len(LATER) + len(TIMES) ** 2 + 1
    assert [record.getMessage() for record in caplog.records if "failed" in record.getMessage()] == []


def test_rows_that_an_earlier_version_has_parked_for_ever_hold_up_nobody(conn, outbox, caplog):
    insert(conn, "Timed", "infinity")
    assert outbox.drain(timeout=30)
    for blocks in (False, True):
        conn.execute("update partbox.parked set due_at = 'infinity', blocks = %s, aggregate_id = 'x'", [blocks])
        insert(conn, "Timed", key="y")
        assert outbox.drain(timeout=30)
    assert len(outbox.seen) == 2
    assert "fails" not in caplog.text
    assert [each.due_at.year for each in outbox.blocked.list()] == [9999]


def test_an_event_that_is_due_soon_is_not_hidden_by_one_that_is_due_in_another_age(conn, outbox):
    insert(conn, "Timed", "infinity")
    conn.execute(
        """insert into partbox.record (partition, event_id, event_type, payload, available_at)
           values (5, gen_random_uuid(), 'Timed', '{}', clock_timestamp() + interval '0.7 s')"""
    )
    with outbox.worker() as worker:
        eventually(lambda: len(outbox.seen) == 1, interval=0.02)
        assert worker.wait_until_empty(120)


MOMENTS = ["infinity", "-infinity", "4713-01-01 BC"]


def test_no_command_and_no_statistic_fails_because_of_far_times(dsn, conn, outbox, run):
    for moment in MOMENTS:
        insert(conn, "Dying", None, moment, moment)
    for moment in MOMENTS:
        insert(conn, "Timed", moment, moment, moment)
    assert outbox.drain(timeout=30)
    for moment in MOMENTS:
        insert(conn, "Dying", None, moment, moment, key="pending")
    conn.execute("update partbox.partition set floor_id = 0, last_id = 0 where partition <> 5")
    for command in ("status", "status --json", "doctor", "doctor --json", "dead list", "dead list --json",
                    "dead show 1", "dead show 2", "dead show 3",
                    "blocked list", "subscription list", "subscription list --json", "purge --dry-run",
                    "subscription create later --from 2020-01-01T00:00:00Z",
                    "subscription create now --from now"):  # fmt: skip
        run(*command.split(), "--dsn", dsn)
    assert "could not be read" not in run("doctor", "--dsn", dsn)
    assert outbox.stats.overview().cluster("default").pending == 3
    pages = [*outbox.stats.pending(), *outbox.stats.failed(), *outbox.stats.parked(), *outbox.stats.completed()]
    assert {each.created_at.year for each in pages} == {1, 9999}
    assert [each.published_at.year in (1, 9999) for each in outbox.dead.list()] == [True] * 3
    assert [outbox.dead.show(number).occurred_at.year for number in (1, 2, 3)] == [9999, 1, 1]
    assert conn.execute("select count from partbox.backlog where subscription = 'default'").fetchone() == (3,)


def test_doctor_looks_for_overdue_events_though_one_has_a_time_before_all_others(dsn, conn, outbox, run):
    for n, moment in enumerate(TIMES):
        insert(conn, "Timed", None, moment, moment, key=str(n))
    conn.execute("update partbox.partition set last_id = 3, floor_id = 3")
    said = run("doctor", "--json", "--dsn", dsn)
    assert "could not be read" not in said
    assert json.loads(said)["findings"]
    conn.execute("update partbox.partition set last_id = 0, floor_id = 0")
    assert "could not be read" not in run("doctor", "--json", "--dsn", dsn)


def test_an_event_that_is_published_for_the_end_of_time_is_scheduled_and_not_dead(dsn, conn):
    """The last moment is a part of the mark of events that had failed before they were imported, whoever gives it."""
    outbox = Outbox(dsn)
    outbox.on("*")(lambda event: None)
    for micros in (999998, 999999):
        conn.execute(
            "select partbox.publish('T', '1', 'A', %s, available_at => %s::timestamptz)",
            [str(micros), f"294276-12-31 23:59:59.{micros}Z"],
        )
    every_headers = [None, "{}", '{"a": "b"}', '["partbox-failed"]', '"partbox-failed"', "7", '{"a": "\\ud800"}']
    for headers in [*every_headers, f'{{"a": "{"x" * 9999}"}}']:
        conn.execute(
            "insert into partbox.record"
            " (partition, event_id, event_type, aggregate_type, aggregate_id, headers, available_at)"
            " values (3, gen_random_uuid(), 'T', 'A', '7', %s, '294276-12-31 23:59:59.999999Z')",
            [headers],
        )
    with outbox.worker():
        found = "select state, due_at = '9999-12-30 00:00Z' from partbox.parked"
        eventually(lambda: conn.execute(found).fetchall() == [("scheduled", True)] * 10)
