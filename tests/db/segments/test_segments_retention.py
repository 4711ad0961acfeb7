"""A segment goes whole once nobody needs what is in it, and never before."""

from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ownership import DEFAULT
from purgeable import OLD, YOUNG, Planted, many
from run_size import examples

from partbox import Outbox
from partbox.db.operator import dead
from partbox.db.operator import segments as steps
from partbox.operations.purge import purge
from partbox.protocol.segments import IdRange
from partbox.segments.retention import list_retentions
from partbox.settings import load

SLOW = "slow"
DONE = 10_000  # an id beyond every segment


def names(conn: psycopg.Connection[Any]) -> list[str]:
    return [name for (name,) in conn.execute("select name from partbox.segment_ranges()")]


def reasons(conn: psycopg.Connection[Any], lower: int) -> list[tuple[Any, ...]]:
    return [hold[:5] for hold in steps.list_holds(conn, "partbox", IdRange(lower, lower + 100), 7 * 86_400.0)]


def test_only_segments_that_no_subscription_needs_are_emptied_whatever_state_keeps_a_record(
    small, planted: Planted, look
):
    """The acceptance: only what no subscription needs goes, and for the others it is told who does."""
    planted.subscribe(SLOW)
    for lower in range(0, 1000, 100):
        planted.record(lower + 10, partition=3)
        planted.record(lower + 20, partition=4)
    planted.consume(DONE)
    planted.consume(819, 899, SLOW)  # the last id that it has read is one below the newest of [800, 900)
    planted.consume(DONE, 819, partition=4)  # and the other one may still see a late one there
    planted.park(110, "retrying", SLOW, partition=3, due=True, blocks=True)
    planted.park(220, "scheduled", partition=4, due=True)
    planted.park(310, "dead", partition=3, due=True)  # its hook is owed
    planted.park(410, "dead", SLOW, partition=3, age=1)
    planted.park(420, "dead", partition=4, age=1, blocks=True)
    planted.record(430, partition=5)
    planted.record(550, age=YOUNG)
    planted.park(610, "held", partition=3, blocks=True)
    before = planted.left()
    told = {lower: reasons(small, lower) for lower in range(0, 1000, 100)}

    done = look()

    assert done.emptied == ("record_1", "record_400", "record_700")
    assert sorted(set(before) - set(planted.left())) == [10, 20, 430, 710, 720]
    assert told == {
        0: [],
        100: [("parked", SLOW, 3, 110, 1)],
        200: [("parked", DEFAULT, 4, 220, 1)],
        300: [("parked", DEFAULT, 3, 310, 1)],
        400: [],
        500: [("young", None, None, 550, None)],
        600: [("parked", DEFAULT, 3, 610, 1)],
        700: [],
        800: [("cursor", DEFAULT, 4, 819, None), ("cursor", SLOW, 0, 819, None)],
        900: [("cursor", DEFAULT, 4, 819, None), ("cursor", SLOW, 0, 819, None)],
    }
    assert look().emptied == ()
    assert planted.meta()["purged_id"] == "720"


def test_a_dead_record_outlives_its_segment_and_is_shown_and_replayed(small, planted: Planted, look, dsn):
    planted.record(20)
    planted.park(planted.record(10), "dead", age=1)
    planted.consume(DONE)
    xid = small.execute("select xid from partbox.record where id = 10").fetchone()
    assert look().emptied == ("record_1",)
    assert planted.left() == [10]
    assert small.execute("select xid from partbox.record where id = 10").fetchone() == xid
    shown = Outbox(dsn).dead.show(10)
    assert shown.event_id is not None
    assert dead.replay(small, "partbox", DEFAULT, [10]) == 1
    assert look().emptied == ()
    assert planted.left() == [10]
    small.execute("delete from partbox.parked")
    assert look(retain_done=0).emptied == ("record_1",)
    assert planted.left() == []


def test_too_many_dead_records_keep_their_segment(small, planted: Planted, look):
    planted.consume(DONE)
    small.execute("alter table partbox.record_100 alter payload set storage external")
    small.execute(
        "insert into partbox.record (id, partition, event_id, event_type, payload, created_at)"
        " select g, 0, gen_random_uuid(), 'T', to_json(repeat('x', 50000)), now() - interval '8 days'"
        " from generate_series(100, 199) g"
    )
    for id in range(100, 199):
        planted.park(id, "dead", age=1)
    assert look().emptied == ()
    assert [hold.reason for hold in steps.list_holds(small, "partbox", IdRange(100, 200), None)] == ["dead"]
    small.execute("delete from partbox.parked where record_id > 110")
    assert look().emptied == ("record_100",)
    assert planted.left() == list(range(100, 111))


def test_a_segment_is_emptied_with_up_to_a_thousand_dead_records_set_aside(conn, planted: Planted, look):
    conn.execute("drop table partbox.record_1")
    conn.execute("create table partbox.record_1 partition of partbox.record for values from (minvalue) to (2000)")
    conn.execute("select setval('partbox.record_id_seq', 2000)")
    many(conn, 1_100)
    conn.execute(
        "insert into partbox.parked (subscription, record_id, partition, aggregate_type, event_type, state, blocks)"
        " select 'default', id, partition, 'A', 'T', 'dead', false from partbox.record where id <= 1001"
    )
    planted.consume(DONE)
    assert look().emptied == ()
    conn.execute("delete from partbox.parked where record_id = 1001")
    assert look().emptied == ("record_1",)
    assert planted.left() == list(range(1, 1_001))


def test_a_subscription_without_a_cursor_for_a_partition_has_passed_nothing(small, planted: Planted, look):
    planted.record(10)
    planted.consume(DONE)
    small.execute("delete from partbox.partition where partition = 77")
    assert look().emptied == ()
    assert reasons(small, 0) == [("cursor", DEFAULT, 77, 0, None)]


def test_full_segments_are_emptied_by_age_alone_if_there_is_no_subscription(small, planted: Planted, look):
    small.execute("delete from partbox.subscription; delete from partbox.partition")
    planted.record(10)
    planted.record(110, age=YOUNG)
    planted.record(910)
    small.execute("select setval('partbox.record_id_seq', 998)")
    assert look().emptied == ("record_1",)
    assert planted.left() == [110, 910]
    assert steps.empty_segment(small, "partbox", 900, 0.0) == ("open", 0)
    small.execute("select setval('partbox.record_id_seq', 999)")
    assert look().emptied == ("record_900",)


def test_beyond_its_size_the_log_loses_its_oldest_segments_early_but_nothing_that_is_needed(
    small, planted: Planted, look
):
    for lower in (100, 300, 500, 700):
        small.execute(
            "insert into partbox.record (id, partition, event_id, event_type, payload, created_at)"
            " select g, 0, gen_random_uuid(), 'T', to_json(repeat(md5(g::text), 300)), now()"
            " from generate_series(%s::bigint, %s) g",
            [lower, lower + 99],
        )
    planted.consume(DONE)
    planted.park(310, "held", blocks=True)
    (whole,) = small.execute("select sum(pg_total_relation_size(segment)) from partbox.segment_ranges()").fetchone()
    (one,) = small.execute("select pg_total_relation_size('partbox.record_100')").fetchone()
    assert look().emptied == ()
    assert look(retain_size=int(whole - one)).emptied == ("record_100",)
    assert 310 in planted.left()
    assert look(retain_size=1).emptied == ("record_500", "record_700")
    assert planted.left() == list(range(300, 400))


def test_rows_of_a_full_segment_wait_a_quarter_of_the_retention_for_the_whole_segment(small, planted: Planted, dsn):
    planted.consume(DONE)
    planted.record(110)
    planted.record(120, age=YOUNG)
    planted.record(210)
    planted.record(220)
    planted.park(220, "held", blocks=True)
    planted.record(5)
    assert purge(lambda: dsn, load()).records == 0
    assert planted.left() == [110, 120, 210, 220]  # [0, 100) went whole
    small.execute("update partbox.record set created_at = now() - interval '9 days' where id in (110, 210)")
    assert purge(lambda: dsn, load()).records == 2
    assert planted.left() == [120, 220]


def test_the_oldest_record_that_is_held_is_named_for_a_segment_purged_record_by_record(small, planted: Planted, dsn):
    planted.consume(DONE)
    planted.consume(5_000_000, partition=9)
    small.execute("select setval('partbox.record_id_seq', 950)")
    planted.record(910, partition=7)
    planted.consume(905, partition=7)
    found = {each.segment.name: each for each in list_retentions(small, load(dsn=dsn))}
    assert found["record_900"].record == 910
    assert [hold[:5] for hold in found["record_900"].holds] == [("cursor", DEFAULT, 7, 905, None)]


IDS = st.integers(1, 30)
CURSORS = st.fixed_dictionaries(
    {
        (name, p): st.tuples(st.sampled_from([5, 15, 25, 40]), st.sampled_from([5, 15, 25, 40]))
        for name in (DEFAULT, SLOW)
        for p in (0, 255)
    }
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        id: st.tuples(st.sampled_from([0, 255]), st.sampled_from([OLD, OLD, OLD, YOUNG])) for id in range(1, 31, 3)
    },
)
ROWS = st.dictionaries(
    st.tuples(st.sampled_from([DEFAULT, SLOW]), IDS),
    st.tuples(st.sampled_from(["dead", "dead", "discarded", "retrying", "held"]), st.booleans()),
    max_size=3,
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cursors=CURSORS, records=RECORDS, rows=ROWS)
def test_maintenance_removes_only_records_that_nobody_needs_whatever_the_log_holds(conn, look, cursors, records, rows):
    conn.execute("truncate partbox.record, partbox.parked, partbox.subscription, partbox.partition")
    for name in names(conn):
        if name != "record_default":
            conn.execute(f"drop table partbox.{name}")
    for lower in (0, 10, 20, 30):
        conn.execute(
            f"create table partbox.record_t{lower} partition of partbox.record"
            f" for values from ({lower}) to ({lower + 10})"
        )
    conn.execute("select setval('partbox.record_id_seq', 35)")
    planted = Planted(conn)
    for name in (DEFAULT, SLOW):
        planted.subscribe(name)
        planted.consume(1000, 1000, name)
    for (name, partition), (last_id, floor_id) in cursors.items():
        planted.consume(last_id, floor_id, name, partition=partition)
    for id, (partition, age) in records.items():
        planted.record(id, partition, age)
    for (name, id), (state, due) in rows.items():
        if id in records:
            planted.park(id, state, name, partition=records[id][0], due=due, age=1)

    emptied = look().emptied

    least = min(min(pair) for pair in cursors.values())
    parked: dict[int, list[bool]] = {id: [] for id in records}
    for (_, id), (state, due) in rows.items():
        if state != "discarded" or due:
            parked.get(id, []).append(state == "dead" and not due)
    expected = []
    for lower in (0, 10, 20):
        inside = [id for id in records if lower <= id < lower + 10]
        gone = [id for id in inside if not parked[id]]
        free = (
            gone
            and max(inside) <= least
            and all(records[id][1] == OLD for id in inside)
            and all(all(parked[id]) for id in inside)
        )
        if free:
            expected.append((f"record_t{lower}", gone))
    assert list(emptied) == [name for name, _ in expected]
    assert planted.left() == sorted(set(records) - {id for _, gone in expected for id in gone})
