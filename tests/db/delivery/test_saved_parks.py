"""The parked rows that a save inserts, changes and deletes."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from ownership import save, saving
from savings import clock, everything, parking, rows

from partbox.protocol.rows import ParkedSave

EXPLAINED = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_level": "notice",
}


def test_a_parked_row_has_every_value_that_the_park_was_saved_with(conn, me, mine):
    full = ParkedSave(
        0,
        7,
        "Order",
        "42 ß ä 'quoted' \"x\" \\",
        "OrderPlaced",
        "retrying",
        blocks=True,
        attempts=2,
        delay=60,
        error='ValueError: ä\n"no"',
        trace='File "ß.py"\n',
    )
    save(conn, me, [saving(mine[0])], parks=[full])
    (row,) = rows(conn).values()
    assert row | {"due_at": None, "parked_at": None} == {
        "subscription": "default",
        "record_id": 7,
        "partition": 0,
        "aggregate_type": "Order",
        "aggregate_id": "42 ß ä 'quoted' \"x\" \\",
        "event_type": "OrderPlaced",
        "state": "retrying",
        "blocks": True,
        "attempts": 2,
        "due_at": None,
        "parked_at": None,
        "started_at": None,
        "last_error": 'ValueError: ä\n"no"',
        "traceback": 'File "ß.py"\n',
    }


def test_parking_again_changes_nothing_and_never_resets_attempts(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", attempts=5, delay=60, error="first")])
    before = everything(conn)[1]
    assert save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "held"), parking(0, 8)]) == {0}
    assert {id: row for id, row in rows(conn).items() if id == 7} == before


def test_a_change_of_a_parked_row_keeps_its_error_unless_there_is_a_new_one(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", attempts=1, delay=60, error="first")])
    conn.execute("update partbox.parked set started_at = now()")
    parked_at = rows(conn)[7]["parked_at"]
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "held", attempts=1, is_new=False)])
    held = rows(conn)[7]
    assert (held["state"], held["attempts"], held["due_at"]) == ("held", 1, None)
    assert (held["last_error"], held["parked_at"], held["started_at"]) == ("first", parked_at, None)
    save(
        conn,
        me,
        [saving(mine[0])],
        parks=[parking(0, 7, "retrying", blocks=False, attempts=2, delay=9, error="second", is_new=False)],
    )
    again = rows(conn)[7]
    assert (again["state"], again["blocks"], again["attempts"], again["last_error"]) == ("retrying", False, 2, "second")
    assert again["due_at"] is not None


def test_a_traceback_stays_as_long_as_its_error_and_goes_with_it(conn, me, mine):
    def stored(**changes):
        parks = [parking(0, 7, "retrying", attempts=1, delay=60, is_new=False, **changes)]
        save(conn, me, [saving(mine[0])], parks=parks)
        row = rows(conn)[7]
        return row["last_error"], row["traceback"]

    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", delay=60, error="first", trace="there")])
    assert stored() == ("first", "there")
    assert stored(error="second", trace="here") == ("second", "here")
    assert stored(error="third") == ("third", None)


def test_a_park_of_a_worker_that_knows_no_tracebacks_is_saved(conn, me, mine):
    class Older(ParkedSave):
        def to_json(self) -> dict[str, Any]:
            return {name: value for name, value in super().to_json().items() if name != "t"}

    old = Older(0, 7, "Order", "42", "OrderPlaced", "retrying", blocks=True, attempts=0, delay=60, error="x")
    save(conn, me, [saving(mine[0])], parks=[old])
    assert (rows(conn)[7]["last_error"], rows(conn)[7]["traceback"]) == ("x", None)


def test_a_row_that_dies_is_dated_from_its_death(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", attempts=9, delay=1)])
    parked_at = rows(conn)[7]["parked_at"]
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "dead", attempts=10, error="last", is_new=False)])
    assert rows(conn)[7]["parked_at"] > parked_at


def test_changing_a_row_that_is_gone_does_not_bring_it_back(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "dead", is_new=False)])
    assert rows(conn) == {}


def test_parked_rows_that_are_done_are_deleted_in_their_subscription_only(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, id) for id in (7, 8, 9)])
    conn.execute(
        "insert into partbox.parked select 'other', (p).record_id, (p).partition, 'A', 'a', 'E', 'held', true"
        " from partbox.parked p"
    )
    save(conn, me, [saving(mine[0])], done_ids=[7, 9, 10])
    left = conn.execute("select subscription, record_id from partbox.parked order by 1, 2").fetchall()
    assert left == [("default", 8), ("other", 7), ("other", 8), ("other", 9)]


def test_one_save_parks_changes_and_deletes(conn, me, mine):
    save(conn, me, [saving(mine[0])], parks=[parking(0, 1), parking(0, 2)])
    save(
        conn,
        me,
        [saving(mine[0]), saving(mine[1])],
        done_ids=[1],
        parks=[parking(0, 2, "ready", is_new=False), parking(1, 3, "dead")],
    )
    assert {id: row["state"] for id, row in rows(conn).items()} == {2: "ready", 3: "dead"}


def test_a_delay_counts_from_the_database_s_clock(conn, me, mine):
    before = clock(conn)
    save(conn, me, [saving(mine[0])], parks=[parking(0, 7, "retrying", delay=60.5), parking(0, 8, "held")])
    after = clock(conn)
    wait = timedelta(seconds=60.5)
    assert before + wait <= rows(conn)[7]["due_at"] <= after + wait
    assert rows(conn)[8]["due_at"] is None


def test_a_due_time_is_kept_to_the_microsecond(conn, me, mine):
    due = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    save(
        conn,
        me,
        [saving(mine[0])],
        parks=[
            parking(0, 7, "scheduled", blocks=False, due=due.isoformat()),
            parking(0, 8, "scheduled", blocks=False, due="infinity"),
        ],
    )
    assert rows(conn, "where record_id = 7")[7]["due_at"] == due
    infinite = conn.execute("select due_at = 'infinity' from partbox.parked where record_id = 8").fetchone()
    assert infinite == (True,)


def test_a_delay_beyond_the_calendar_becomes_a_date_in_the_far_future(conn, me, mine):
    delays = {1: 1e13, 2: timedelta.max.total_seconds(), 3: 1e300}
    parks = [parking(0, id, "deferred", delay=delay) for id, delay in delays.items()]
    assert save(conn, me, [saving(mine[0])], parks=parks) == {0}
    far = conn.execute("select count(*) from partbox.parked where due_at > now() + interval '90 years'").fetchone()
    assert far == (3,)


def test_saving_many_failures_compares_few_rows_even_with_outdated_statistics(conn, me, mine):
    """With statistics of an empty table each row was compared with all: that took milliseconds for each record."""
    heard: list[str] = []
    conn.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
    conn.execute("load 'auto_explain'")
    for name, value in EXPLAINED.items():
        conn.execute("select set_config(%s, %s, false)", [name, value])
    for new in (True, False, False):
        parks = [
            parking(0, id, "retrying", attempts=1, delay=60, error="no", outcome="failed", is_new=new)
            for id in range(1, 501)
        ]
        save(conn, me, [saving(mine[0])], parks=parks)
    save(conn, me, [saving(mine[0])], done_ids=list(range(1, 501)))
    assert conn.execute("select count(*) from partbox.attempt").fetchone() == (2_000,)
    compared = [int(rows) for text in heard for rows in re.findall(r"Rows Removed by (?:Join )?Filter: (\d+)", text)]
    assert any("partbox" in text and "attempt" in text for text in heard)
    assert max(compared, default=0) < 5_000
