"""Where a partition is read from, and how pages move it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.rules import cursor as rules
from partbox.rules.cursor import Ask, Cursor
from partbox.rules.progress import Page

SAVED = "5:5:"
N1, N2, N3 = Page("10:10:", 100), Page("20:20:", 200), Page("30:30:", 300)
ROOM = 3


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch):
    monkeypatch.setattr(rules, "CAP", 2)
    monkeypatch.setattr(rules, "STRETCH", 1_000)


def claimed(last_id: int = 50, floor: int = 10) -> Cursor:
    return Cursor(7, last_id, SAVED, floor)


def lockstep(last_id: int = 50) -> Cursor:
    cursor = claimed(last_id)
    cursor.read(cursor.ask(0), Page("6:6:", 0), None, [], [])
    cursor.read(cursor.ask(0), Page("7:7:", 0), Page("6:6:", 0), [], [])
    assert cursor.lockstep
    return cursor


def test_a_claimed_partition_asks_for_its_own_snapshot_and_floor():
    cursor = claimed()
    assert cursor.fresh
    assert cursor.ask(ROOM) == Ask(7, 50, ROOM, SAVED, 10, None, None)


def test_it_takes_two_whole_pages_to_be_in_lockstep():
    cursor = claimed()
    cursor.read(cursor.ask(ROOM), N1, None, [], [])
    assert not cursor.fresh
    assert not cursor.lockstep
    assert cursor.ask(ROOM)[3:5] == (N1.snapshot, N1.floor)
    cursor.read(cursor.ask(ROOM), N2, N1, [], [])
    assert cursor.lockstep
    assert cursor.ask(ROOM)[3:5] == (None, None)


def test_room_is_never_negative():
    assert claimed().ask(-4).room == 0


def test_the_scan_starts_at_the_lower_of_floor_and_last_id():
    assert claimed(last_id=50, floor=10).lowest(99) == 10
    assert claimed(last_id=50, floor=90).lowest(99) == 50
    assert lockstep(last_id=50).lowest(20) == 20
    assert lockstep(last_id=50).lowest(99) == 50


def test_new_records_move_the_last_id():
    cursor = lockstep()
    reading = cursor.read(cursor.ask(ROOM), N1, Page("7:7:", 0), [40], [60, 61, 62])
    assert (reading.page, reading.late, reading.new, reading.raised) == (N1, [40], [60, 61, 62], 0)
    assert cursor.last_id == 62
    assert cursor.full, "there may be more"


def test_without_room_a_page_is_full():
    cursor = lockstep()
    assert cursor.read(cursor.ask(0), N1, Page("7:7:", 0), [], []).raised == 0
    assert cursor.full


def test_a_page_with_room_to_spare_raises_the_last_id_to_its_floor():
    cursor = lockstep()
    assert cursor.read(cursor.ask(ROOM), N1, Page("7:7:", 0), [], [60]).raised == N1.floor
    assert cursor.last_id == N1.floor
    assert not cursor.full


def test_a_floor_below_the_last_id_raises_nothing():
    cursor = lockstep(last_id=500)
    assert cursor.read(cursor.ask(ROOM), N1, Page("7:7:", 0), [], []).raised == 0
    assert cursor.last_id == 500


def test_too_many_late_records_come_in_pieces_of_the_first_page():
    cursor, shared = lockstep(), Page("7:7:", 0)
    first = cursor.read(cursor.ask(ROOM), N1, shared, [20, 21, 22], [60])
    assert (first.page, first.late, first.new, first.last, first.piece) == (N1, [20, 21], [], False, True)
    assert cursor.ask(ROOM) == Ask(7, 50, 0, shared.snapshot, shared.floor, N1.snapshot, 21)
    assert cursor.lowest(0) == 21

    second = cursor.read(cursor.ask(ROOM), N2, N1, [22, 23, 24], [])
    assert (second.page, second.late, second.last) == (N1, [22, 23], False)
    last = cursor.read(cursor.ask(ROOM), N3, N2, [24], [])
    assert (last.page, last.late, last.new, last.last) == (N1, [24], [], True)
    assert cursor.ask(ROOM) == Ask(7, 50, ROOM, N1.snapshot, N1.floor, None, None)
    assert cursor.full
    assert cursor.last_id == 50


def test_a_long_range_comes_in_pieces_that_end_after_a_stretch():
    cursor = claimed(last_id=2_500, floor=100)
    ends = []
    for _ in range(2):
        reading = cursor.read(cursor.ask(ROOM), N1, None, [], [2_600])
        assert (reading.new, reading.last) == ([], False)
        ends.append(cursor.after)
    assert ends == [1_100, 2_100]
    assert cursor.read(cursor.ask(ROOM), N2, None, [2_200], []) == rules.Reading(N1, [2_200], [], 0, True, True)
    assert cursor.fresh, "it was not read whole, so it is not to be read with the others yet"


@given(st.sets(st.integers(1, 50), max_size=30), st.integers(1, 5), st.integers(1, 60))
def test_pieces_bring_every_late_record_once_and_in_order(late, cap, stretch):
    rules.CAP, rules.STRETCH = cap, stretch  # put back by the fixture
    cursor, seen, last = claimed(last_id=50, floor=0), [], False
    for _ in range(200):
        start = cursor.after or 0
        rows = [id for id in sorted(late) if start < id <= min(50, start + stretch)][: cap + 1]
        reading = cursor.read(cursor.ask(ROOM), N1, None, rows, [])
        seen += reading.late
        last = reading.last
        if last:
            break
    assert last
    assert seen == sorted(late)
