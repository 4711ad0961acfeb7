"""Small segments of the log, made, emptied and dropped during a run, and killed in the middle of that."""

from types import SimpleNamespace

import psycopg
import pytest
from forked_commands import forks
from psycopg.conninfo import make_conninfo
from test_chaos_command import chaos, ended, make_open_folder
from waiting import eventually

from partbox.db.operator import segments as steps
from partbox.protocol.segments import IdRange, Segment
from partbox_lab.chaos import statements
from partbox_lab.chaos.segment_churn import AHEAD, KILLS, ROLE, SIZE, SegmentChurn, following

__all__ = ["chaos", "forks", "make_open_folder"]


def segment(lower: int | None, upper: int | None) -> Segment:
    return Segment(f"record_{lower}", lower, upper, 0, None, None, None, None)


def test_small_segments_follow_each_other_some_way_ahead_of_the_ids():
    net = segment(None, None)
    made = list(following([segment(0, 10_000), net], 9_000))
    start = 9_000 + AHEAD * SIZE
    assert made == [IdRange(start + number * SIZE, start + (number + 1) * SIZE) for number in range(AHEAD)]
    there = [segment(*each) for each in made]
    assert list(following([*there, net], 9_000)) == []
    (more,) = following([*there, net], made[0].lower)
    assert more.lower == max(made[-1].upper, made[0].lower + AHEAD * SIZE)


def test_an_existing_segment_that_would_overlap_is_left_as_it_is():
    start = AHEAD * SIZE
    large = segment(start + 10, start + 5 * SIZE)
    made = list(following([large], 0))
    assert [each.lower for each in made[:2]] == [start + 5 * SIZE, start + 6 * SIZE]


@pytest.fixture
def place(dsn):
    def connect(role):
        return psycopg.connect(make_conninfo(dsn, application_name=f"chaos {role}"), autocommit=True)

    return SimpleNamespace(dsn=dsn, schema="partbox", connect=connect)


@pytest.fixture
def churn(place):
    """A churn that has begun, on segments of a size of its own; it ends with the test."""
    made = SegmentChurn(place)
    made.begin()
    yield made
    made.stopping.set()
    made.join()
    assert made.error is None


def consume(conn):
    """All that is there, as the only subscription would."""
    conn.execute(
        "update partbox.partition set last_id = 100000000, floor_id = 100000000, snapshot = pg_current_snapshot()"
    )


def test_each_step_that_is_killed_in_the_middle_leaves_nothing_behind(churn, conn):
    consume(conn)
    for fault in KILLS:
        churn.kill(fault)

    def all_killed() -> bool:
        conn.execute("insert into partbox.record (partition, event_id, event_type) values (0, gen_random_uuid(), 'T')")
        return set(churn.killed) == set(KILLS)

    eventually(all_killed, 60, 0.05, moves=lambda: sum(churn.done.values()))
    eventually(lambda: all(churn.done[step] for step in KILLS.values()))
    assert churn.left_over() == []
    assert conn.execute("select count(*) from partbox.record").fetchone() == (0,)


def test_a_step_that_is_given_up_is_not_killed_and_the_next_one_is_once_it_has_its_lock(place):
    churn = SegmentChurn(place)
    churn.kill("kill-drop")
    with place.connect(ROLE) as struck:
        churn._take(struck, "kill-drop", lambda: "busy")
        assert not churn.killed

        def step() -> None:
            struck.execute("lock table only partbox.record in access exclusive mode")

        with pytest.raises(psycopg.OperationalError):
            churn._take(struck, "kill-drop", step)
    assert churn.killed == {"kill-drop": 1}
    assert not churn.done


def test_a_kill_that_coincides_with_the_end_of_a_step_is_survived(place, conn):
    churn = SegmentChurn(place)
    churn.kill("kill-drop")
    with place.connect(ROLE) as struck:

        def given_up() -> str:
            conn.execute("select pg_terminate_backend(%s, 5000)", [struck.info.backend_pid])
            return "busy"

        churn._take(struck, "kill-drop", given_up)
        assert struck.closed


def test_records_and_tables_that_no_purge_would_remove_are_reported(conn):
    conn.execute("create table partbox.record_7 (id bigint)")
    assert steps.exclude_ids(conn, "partbox", IdRange(5_000_000, 6_000_000)) is None
    conn.execute(
        "insert into partbox.record (id, partition, event_id, event_type) values (30000000, 0, gen_random_uuid(), 'T')"
    )
    conn.execute("select setval('partbox.record_id_seq', 40000000)")
    consume(conn)
    assert statements.left_over(conn, "partbox") == [
        "table record_7 is no segment",
        "constraint segment_proof keeps out 5000000 to 6000000",
        "record_default holds 1 records",
        "record_1 is an empty shell",
    ]


@pytest.mark.thorough
def test_a_short_run_in_which_segments_are_made_emptied_and_dropped_keeps_every_promise(chaos):
    run = (
        "--seconds",
        "7",
        "--seed",
        "1242",
        "--nodes",
        "1",
        "--processes",
        "1",
        "--faults",
        ",".join(KILLS),
        "--json",
    )
    report = ended(chaos("--embedded", *run))
    assert report["published"] > 100
    assert report["segments"]["attach"] > 0
    assert report["faults"]["kill-attach"] > 0
