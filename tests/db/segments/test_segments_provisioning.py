"""Segments are there before they are needed, and nobody who publishes fails or waits for them."""

import threading
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation
from purgeable import Planted

from partbox.db.operator import segments as steps
from partbox.protocol.segments import IdRange, Segment
from partbox.segments import maintain_segments, provisioning
from partbox.settings import load

MILLION = 1_000_000
BIG = """
insert into partbox.record (id, partition, event_id, event_type, payload)
select g, g %% 256, gen_random_uuid(), 'T', to_json(repeat('x', 900)) from generate_series(%s::bigint, %s) g
"""


def found(conn: psycopg.Connection[Any]) -> list[Segment]:
    return steps.list_segments(conn, "partbox")


def at(conn: psycopg.Connection[Any], lower: int | None) -> Segment:
    return next(each for each in found(conn) if each.lower == lower)


def ranges(conn: psycopg.Connection[Any]) -> list[tuple[int | None, int | None]]:
    return [(each.lower, each.upper) for each in found(conn)]


def publish(conn: psycopg.Connection[Any]) -> None:
    conn.execute("select partbox.publish('T', '{}')")


def drawn(conn: psycopg.Connection[Any], last: int) -> None:
    conn.execute("select setval('partbox.record_id_seq', %s)", [last])


@pytest.fixture
def overrun(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A log that ran into its default segment, which is too large to be searched while it is locked."""
    conn.execute("alter table partbox.record_default alter payload set storage external")
    conn.execute(BIG, [10 * MILLION, 10 * MILLION + 12_000])
    drawn(conn, 10 * MILLION + 12_000)
    return conn


def test_one_maintenance_run_makes_three_segments_ahead_and_the_next_makes_none(conn, look):
    assert look().made == ("record_10000000", "record_12000000", "record_14000000")
    assert ranges(conn) == [
        (0, 10 * MILLION),
        *((lower * MILLION, (lower + 2) * MILLION) for lower in (10, 12, 14)),
        (None, None),
    ]
    assert not look()
    drawn(conn, 10 * MILLION)
    assert look().made == ("record_16000000",)


def test_a_new_segment_has_the_indexes_that_polls_use_and_the_rights_that_the_log_has(conn, look, cast):
    conn.execute("drop table partbox.record_1")
    with psycopg.connect(cast.of("worker"), autocommit=True) as worker:
        assert steps.add_segment(worker, "partbox", IdRange(1, 10 * MILLION)) is None
    attached = conn.execute(
        "select count(*) from pg_inherits i join pg_index x on x.indexrelid = i.inhrelid"
        " where x.indrelid = 'partbox.record_1'::regclass and x.indisvalid"
    ).fetchone()
    assert attached == (2,)
    owners = conn.execute(
        "select count(distinct relowner) from pg_class where relname in ('record', 'record_1')"
    ).fetchone()
    assert owners == (1,)
    with psycopg.connect(cast.of("publisher"), autocommit=True) as publisher:
        publisher.execute("select partbox.publish('Placed', '1')")
    assert at(conn, 1).oldest == 1
    with psycopg.connect(cast.of("worker"), autocommit=True) as worker:
        assert worker.execute("select count(*) from partbox.record").fetchone() == (1,)


def test_a_worker_role_that_owns_no_table_can_maintain_segments(conn, cast):
    conn.execute("update partbox.partition set last_id = 20000000, floor_id = 20000000")
    drawn(conn, 20 * MILLION)
    Planted(conn).record(10)
    done = maintain_segments(lambda: cast.of("worker"), load())
    assert (len(done.made), done.emptied, done.dropped) == (3, ("record_1",), ("record_1",))


def test_a_new_segment_begins_above_the_ids_in_the_default_segment(conn, look):
    drawn(conn, 10 * MILLION + 500)
    Planted(conn).record(10 * MILLION + 400)
    assert look().made == ("record_12000000", "record_14000000", "record_16000000")
    drawn(conn, 12 * MILLION)
    publish(conn)
    assert at(conn, 12 * MILLION).oldest == 12 * MILLION + 1
    assert at(conn, None).newest == 10 * MILLION + 400


def test_an_overrun_log_gets_its_segments_again_while_publishing_goes_on(overrun, look, dsn):
    with psycopg.connect(dsn) as publisher:  # its transaction goes on for the whole time, in no segment of these
        publisher.execute("select pg_current_xact_id()")
        made = look().made
        assert len(made) == 13
        assert made[0] == "record_15000000"
        assert steps.find_exclusion(overrun, "partbox") is None
        publish(publisher)
    assert at(overrun, None).newest == 10 * MILLION + 12_001
    drawn(overrun, 15 * MILLION)
    publish(overrun)
    assert at(overrun, 15 * MILLION).oldest == 15 * MILLION + 1


def test_maintenance_does_not_wait_for_a_publisher_that_has_written_to_the_default_segment(overrun, look, dsn):
    with psycopg.connect(dsn) as publisher, psycopg.connect(dsn) as other:
        publish(publisher)
        assert not look()
        other.execute("set local lock_timeout = 1")
        publish(other)
        assert steps.find_exclusion(overrun, "partbox") is None
    assert len(look().made) == 13


def test_a_large_default_segment_is_never_searched_while_it_is_locked(overrun):
    assert steps.add_segment(overrun, "partbox", IdRange(20 * MILLION, 22 * MILLION)) == "unproven"
    assert steps.exclude_ids(overrun, "partbox", IdRange(20 * MILLION, 21 * MILLION)) is None
    assert steps.add_segment(overrun, "partbox", IdRange(20 * MILLION, 21 * MILLION)) == "unproven"
    steps.prove_exclusion(overrun, "partbox")
    assert steps.add_segment(overrun, "partbox", IdRange(20 * MILLION, 22 * MILLION)) == "unproven"
    assert steps.add_segment(overrun, "partbox", IdRange(20 * MILLION, 21 * MILLION)) is None


def test_an_exclusion_left_by_a_killed_process_is_removed_before_publishing_reaches_its_ids(overrun, look, dsn):
    left = IdRange(15 * MILLION, 17 * MILLION)
    steps.exclude_ids(overrun, "partbox", left)
    assert steps.find_exclusion(overrun, "partbox") == (left, False)
    drawn(overrun, 14 * MILLION)
    look()
    assert steps.find_exclusion(overrun, "partbox") is None
    with overrun.transaction():
        drawn(overrun, 15 * MILLION)
        publish(overrun)


@pytest.mark.parametrize("segments", [2, 0])
def test_a_leftover_exclusion_is_removed_at_once_if_no_segment_has_to_be_made(overrun, look, segments):
    """Also if the last segments took some of the ids meanwhile, but not all."""
    look()
    end = ranges(overrun)[-2][1] - 2 * MILLION * segments
    assert steps.exclude_ids(overrun, "partbox", IdRange(end, end + 10 * MILLION)) is None
    assert look().made == ()
    assert steps.find_exclusion(overrun, "partbox") is None


def test_a_leftover_exclusion_that_is_still_needed_stays_until_publishing_comes_near_its_ids(
    overrun, look, monkeypatch
):
    """Segments are wanted, but something is in the way of the search."""
    monkeypatch.setattr(provisioning, "_prove_absence", lambda *_: False)
    left = IdRange(15 * MILLION, 17 * MILLION)
    steps.exclude_ids(overrun, "partbox", left)
    drawn(overrun, 12 * MILLION)
    look()
    assert steps.find_exclusion(overrun, "partbox") == (left, False)
    drawn(overrun, 13 * MILLION + 500_000)
    look()
    assert steps.find_exclusion(overrun, "partbox") is None


def test_an_exclusion_is_not_proven_if_the_default_segment_holds_one_of_its_ids(overrun, dsn):
    steps.exclude_ids(overrun, "partbox", IdRange(10 * MILLION + 12_001, 17 * MILLION))
    overrun.execute("alter table partbox.record_default drop constraint segment_proof")
    publish(overrun)
    overrun.execute(
        f"alter table partbox.record_default add constraint segment_proof"
        f" check (id < {10 * MILLION + 12_001} or id >= {17 * MILLION}) not valid"
    )
    with pytest.raises(CheckViolation):
        steps.prove_exclusion(overrun, "partbox")


def test_a_killed_search_of_the_default_segment_is_repeated_by_the_next_maintenance_run(overrun, look, monkeypatch):
    def killed(conn: psycopg.Connection[Any], schema: str) -> None:
        overrun.execute("select pg_terminate_backend(%s)", [conn.info.backend_pid])
        conn.execute("select 1")

    with monkeypatch.context() as patched:
        patched.setattr(provisioning.steps, "prove_exclusion", killed)
        with pytest.raises(psycopg.OperationalError):
            look()
    assert steps.find_exclusion(overrun, "partbox") is not None
    assert len(look().made) == 13
    assert steps.find_exclusion(overrun, "partbox") is None


def test_concurrent_maintenance_runs_make_each_segment_once(conn, look):
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(look().made)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    look()
    assert len(made) == len(set(made))
    assert [each for each in ranges(conn) if each[0]] == [
        (lower * MILLION, (lower + 2) * MILLION) for lower in (10, 12, 14)
    ]


def test_a_new_segment_for_ids_that_are_drawn_or_taken_is_refused(conn):
    drawn(conn, 12 * MILLION)
    assert steps.add_segment(conn, "partbox", IdRange(12 * MILLION, 14 * MILLION)) == "passed"
    assert steps.add_segment(conn, "partbox", IdRange(13 * MILLION, 15 * MILLION)) is None
    assert steps.add_segment(conn, "partbox", IdRange(14 * MILLION, 16 * MILLION)) == "taken"
    for wrong in (IdRange(0, 5), IdRange(7, 7)):
        with pytest.raises(psycopg.errors.RaiseException, match="takes ids"):
            steps.add_segment(conn, "partbox", wrong)


def test_maintenance_waits_for_polls_that_hold_every_segment_for_a_moment(conn, look, dsn):
    stopped = threading.Event()
    failed: list[BaseException] = []

    def poll() -> None:
        try:
            with psycopg.connect(dsn, autocommit=True) as own:
                while not stopped.is_set():
                    own.execute("select from partbox.record order by id limit 1")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    made = [name for _ in range(50) for name in look().made]
    stopped.set()
    thread.join()
    assert failed == []
    assert len(made) == 3
