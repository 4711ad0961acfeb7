"""Reading the log: pages, fences and bodies."""

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ownership import SCHEMA, Conn
from polling import TOP, ask, poll, write, write_at, writing

from partbox.db.delivery import idle_check, records
from partbox.events.record import PageStats
from partbox.protocol.cursor import MAX_LATE, STRETCH
from partbox.protocol.horizon import Page, Snapshot
from partbox.protocol.sweep import Sweep


def test_a_page_holds_the_new_records_up_to_the_room_of_each_partition(conn):
    write(conn, 4, partition=5)
    write(conn, 3, partition=6)
    write(conn, 2, partition=7)
    assert poll(conn, ask(room=2), ask(room=9, partition=6))[1] == [1, 2, 5, 6, 7]
    assert poll(conn, ask(last_id=2, floor=2, room=9))[1] == [3, 4]


def test_a_sweep_reads_in_id_order_the_records_above_the_last_id_of_each_partition(conn):
    for number in (5, 6, 7, 5, 6, 7):
        write(conn, 1, partition=number)
    asks = ask(1, floor=1, partition=5), ask(room=1, partition=6), ask(partition=7)
    swept = Sweep(start=0, end=6, max_records=10, last_ids={5: 1, 6: 0})
    _, _, rows, *_ = records.poll_page(conn, SCHEMA, asks, None, lo=0, hi=TOP, sweep=swept)
    assert [row[1] for row in rows] == [3, 6, 2, 4, 5]  # partition 7 by itself, and the others whatever their rooms


def test_a_sweep_ends_at_its_number_of_records_and_at_its_last_id(conn):
    write(conn, 6)
    assert poll(conn, ask(), swept=Sweep(1, 4, 10, {5: 1}))[1] == [2, 3, 4]
    assert poll(conn, ask(), swept=Sweep(1, 6, 2, {5: 1}))[1] == [2, 3]


def test_a_poll_with_a_sweep_returns_late_records_of_swept_partitions_too(dsn, conn):
    with writing(dsn) as late:
        write(conn, 2)
        snapshot, _ = poll(conn, ask(room=1))
        late.commit()
    assert poll(conn, ask(2, 1, snapshot), swept=Sweep(2, 3, 10, {5: 2}))[1] == [1, 3]


def test_new_records_come_in_the_order_of_ids_not_of_transactions(dsn, conn):
    with psycopg.connect(dsn) as early:
        early.execute("select pg_current_xact_id()")
        write(conn)
        write(early)
    _, _, rows, *_ = records.poll_page(conn, SCHEMA, [ask()], None, lo=0, hi=TOP)
    assert [row[1] for row in rows] == [1, 2]


def test_a_page_without_records_has_its_snapshot_all_the_same(conn):
    snapshot, ids = poll(conn, ask())
    assert ids == []
    assert Snapshot.parse(snapshot).xmax > 0


def test_a_late_record_is_read_whatever_the_room(dsn, conn):
    with writing(dsn) as late:
        write(conn)
        snapshot, ids = poll(conn, ask())
        assert ids == [2]
        late.commit()
    write(conn)
    assert poll(conn, ask(2, 0, snapshot))[1] == [1]
    assert poll(conn, ask(2, 1, snapshot))[1] == [1, 3]


def test_a_late_record_is_looked_for_above_the_floor_only(dsn, conn):
    with writing(dsn, 3) as late:
        write(conn)
        snapshot, _ = poll(conn, ask())
        late.commit()
    assert poll(conn, ask(4, 0, snapshot, 1))[1] == [2, 3]
    assert poll(conn, ask(4, 0, snapshot, 3))[1] == []


def test_a_floor_above_the_cursor_hides_nothing_of_the_backlog(conn):
    write(conn, 5)
    assert poll(conn, ask(last_id=2, floor=5))[1] == [3, 4, 5]


def test_partitions_in_lockstep_share_one_snapshot_and_one_floor(dsn, conn):
    with writing(dsn, 1, partition=5) as late, writing(dsn, 1, partition=6) as later:
        write(conn, 1, partition=5)
        write(conn, 1, partition=6)
        snapshot, _ = poll(conn, ask(), ask(partition=6))
        late.commit()
        later.commit()
    for floor, ids in ((0, [1, 2]), (1, [2])):
        shared = Page(snapshot, floor)
        lockstep = [ask(4, 0, base=shared), ask(4, 0, base=shared, partition=6)]
        assert poll(conn, *lockstep, shared=shared)[1] == ids


def test_partitions_with_their_own_base_page_are_read_from_it_beside_the_shared_page(dsn, conn):
    with (
        writing(dsn, 1, partition=5) as late,
        writing(dsn, 1, partition=6) as later,
        writing(dsn, 1, partition=7) as last,
    ):
        for partition in (5, 6, 7):
            write(conn, 1, partition=partition)
        snapshot, _ = poll(conn, ask(), ask(partition=6), ask(partition=7))
        for each in (late, later, last):
            each.commit()
    shared, own, other = Page(snapshot, 0), Page(snapshot, 2), Page(snapshot, 1)
    asks = [
        ask(6, 0, base=shared),
        ask(6, 0, base=own, partition=6),
        ask(6, 0, base=other, partition=7),
        ask(6, 0, base=shared, partition=8),
        ask(6, 0, base=own, partition=9),
    ]
    _, floors, rows, *_ = records.poll_page(conn, SCHEMA, asks, shared, lo=0, hi=TOP)
    assert floors == [0, 2, 1, 0, 2]
    assert sorted(row[1] for row in rows) == [1, 3]


@pytest.mark.parametrize("lockstep", [True, False])
def test_only_bounds_of_transactions_that_have_ended_lower_the_floor(dsn, conn, lockstep):
    with writing(dsn, 1) as ended, writing(dsn, 1) as open_:
        write(conn)
        listed = [_xid(ended), _xid(open_)]
        snapshot, _ = poll(conn, ask())
        ended.commit()
        for bounds, expected in (((0, 1), (0, [1])), ((1,), (3, []))):
            page = Page(snapshot, 3, tuple(zip(listed[-len(bounds) :], bounds, strict=True)))
            shared = page if lockstep else None
            _, (floor,), rows, *_ = records.poll_page(conn, SCHEMA, [ask(3, 0, base=page)], shared, lo=0, hi=TOP)
            assert (floor, [row[1] for row in rows]) == expected


def test_a_cut_page_returns_one_record_beyond_the_cap_and_its_rest_piece_by_piece(dsn, conn):
    with writing(dsn, MAX_LATE + 500) as late:
        write(conn)
        last = MAX_LATE + 501
        snapshot, ids = poll(conn, ask())
        assert ids == [last]
        late.commit()
    until, ids = poll(conn, ask(last, 0, snapshot))
    assert ids == list(range(1, MAX_LATE + 2))
    write(conn)
    _, ids = poll(conn, ask(last, 0, snapshot, until=until, after=MAX_LATE))
    assert ids == list(range(MAX_LATE + 1, MAX_LATE + 501))


def test_the_rest_of_a_cut_page_has_only_records_that_its_first_piece_could_see(dsn, conn):
    with writing(dsn, 2) as early, writing(dsn, 2) as later:
        write(conn)
        snapshot, _ = poll(conn, ask())
        early.commit()
        until, ids = poll(conn, ask(5, 0, snapshot))
        assert ids == [1, 2]
        later.commit()
    assert poll(conn, ask(5, 0, snapshot, until=until, after=1))[1] == [2]
    assert poll(conn, ask(5, 0, until))[1] == [3, 4]


def test_one_poll_searches_a_limited_range_of_ids_for_late_records(dsn, conn):
    with writing(dsn) as late:
        write_at(late, STRETCH)
        write_at(late, STRETCH + 1)
        write_at(conn, 2 * STRETCH)
        snapshot, ids = poll(conn, ask())
        assert ids == [2 * STRETCH]
        late.commit()
    assert poll(conn, ask(2 * STRETCH, 0, snapshot))[1] == [1, STRETCH]
    assert poll(conn, ask(2 * STRETCH, 0, snapshot, after=STRETCH))[1] == [STRETCH + 1]


def test_the_snapshot_comes_once_however_long_it_is(dsn, conn):
    write(conn, 200)
    with ExitStack() as stack:
        late = [stack.enter_context(writing(dsn)) for _ in range(50)]
        write(conn)
        snapshot, _, rows, *_ = records.poll_page(conn, SCHEMA, [ask(room=1000)], None, lo=0, hi=TOP)
        assert set(Snapshot.parse(snapshot).xip) == {_xid(each) for each in late}
        assert sorted(row[1] for row in rows) == [*range(1, 201), 251]
        assert [row for row in rows if row[0] is None] == []
        for each in late:
            each.commit()
    assert poll(conn, ask(251, 0, snapshot))[1] == list(range(201, 251))


def test_polls_and_idle_checks_draw_no_transaction_id(conn):
    write(conn, 3)
    before = idle_check.run_check(conn, SCHEMA, []).fence
    for _ in range(5):
        poll(conn, ask())
        idle_check.run_check(conn, SCHEMA, [])
        records.load_bodies(conn, SCHEMA, [(5, 1)])
    assert idle_check.run_check(conn, SCHEMA, []).fence == before


def test_a_delayed_record_has_its_due_time_and_its_page_the_current_time(conn):
    write(conn, 2)
    conn.execute("update partbox.record set available_at = now() + (id - 2) * interval '1 hour' + interval '1 minute'")
    _, _, rows, clock, *_ = records.poll_page(conn, SCHEMA, [ask()], None, lo=0, hi=TOP)
    now = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock)
    assert [(row[1], row[11] > now) for row in rows] == [(1, False), (2, True)]
    assert abs(rows[1][11] - timedelta(minutes=1) - now) < timedelta(seconds=30)


def test_no_id_counts_as_drawn_before_the_first_record(conn):
    assert idle_check.run_check(conn, SCHEMA, []).fence.drawn_id == 0


def test_a_fence_knows_the_last_id_and_the_last_transaction(conn):
    write(conn, 3)
    fence = idle_check.run_check(conn, SCHEMA, []).fence
    assert fence.drawn_id == 3
    assert _next_xid(conn) == fence.xid + 1


def test_an_idle_check_notices_that_one_of_the_listed_transactions_has_ended(dsn, conn):
    with writing(dsn) as first, writing(dsn) as second:
        listed = [_xid(first), _xid(second)]
        assert not idle_check.run_check(conn, SCHEMA, listed).has_ended
        first.rollback()
        assert idle_check.run_check(conn, SCHEMA, listed).has_ended
        assert not idle_check.run_check(conn, SCHEMA, listed[1:]).has_ended


def test_bodies_are_returned_in_id_order_without_those_of_missing_records(conn):
    write(conn, 2, partition=9)
    write(conn, 2, partition=5)
    rows = records.load_bodies(conn, SCHEMA, [(5, 4), (9, 2), (9, 3), (9, 99), (5, 3)])
    assert [(row[0], row[1]) for row in rows] == [(9, 2), (5, 3), (5, 4)]
    assert records.load_bodies(conn, SCHEMA, []) == []


def _xid(conn: Conn) -> int:
    return int(conn.execute("select pg_current_xact_id()::text").fetchone()[0])


def _next_xid(conn: Conn) -> int:
    """The transaction id that this statement draws."""
    return _xid(conn)


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["A", "B", None]), st.sampled_from([b"1", None]), st.booleans())
)


@given(ROWS, st.integers(1, 4))
def test_page_stats_agree_with_the_rows_however_many_rows_are_added_at_once(
    drawn: list[tuple[int, str | None, bytes | None, bool]], at_once: int
) -> None:
    rows: list[Any] = [
        (partition, id, b"", type, "Key", "k", None, payload, None, None, None, b"t" * 8 if later else None, b"", b"")
        for id, (partition, type, payload, later) in enumerate(drawn)
    ]
    stats = PageStats()
    for first in range(0, len(rows), at_once):
        stats.add(rows[first : first + at_once])
    assert stats.types == {row[3] for row in rows}
    assert (stats.has_incomplete, stats.has_delayed) == (
        any(None in (row[3], row[7]) for row in rows),
        any(map(is_later, rows)),
    )
    assert [row for number in sorted(stats.by_partition) for row in stats.by_partition[number].rows] == sorted(
        rows, key=place
    )
    assert all([row[1] for row in share.rows] == share.ids for share in stats.by_partition.values())


is_later, place = itemgetter(11), itemgetter(0, 1)
