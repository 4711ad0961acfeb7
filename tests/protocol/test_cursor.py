"""The reading position of a partition, and how pages move it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol import cursor as rules
from partbox.protocol.cursor import Cursor, CutPage, ReadMode, ReadRequest
from partbox.protocol.horizon import Page

SAVED = "5:5:"
SHARED = Page("7:7:", 0)
N1, N2, N3 = Page("10:10:", 100), Page("20:20:", 200), Page("30:30:", 300)
ROOM = 3


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch):
    monkeypatch.setattr(rules, "MAX_LATE", 2)
    monkeypatch.setattr(rules, "STRETCH", 1_000)


def claimed(last_id: int = 50, floor: int = 10) -> Cursor:
    return Cursor(7, last_id, Page(SAVED, floor))


def alone(cursor: Cursor, page: Page, late: list[int], new: list[int], room: int = ROOM) -> rules.PagePart:
    """A poll for itself; every transaction that its page listed has ended."""
    asked = cursor.build_request(room, None)
    return cursor.take_page(asked, page, asked.base_page.floor, late, new, together=False)


def together(
    cursor: Cursor, page: Page, late: list[int], new: list[int], room: int = ROOM, shared: Page = SHARED
) -> rules.PagePart:
    """The poll that those in lockstep share."""
    asked = cursor.build_request(room, shared)
    return cursor.take_page(asked, page, asked.base_page.floor, late, new, together=True)


def lockstep(last_id: int = 50) -> Cursor:
    cursor = claimed(last_id)
    alone(cursor, Page("6:6:", 0), [], [], room=0)
    together(cursor, SHARED, [], [], room=0, shared=Page("6:6:", 0))
    assert cursor.is_in_lockstep
    return cursor


def test_a_claimed_partition_asks_for_its_own_snapshot_and_floor():
    cursor = claimed()
    assert cursor.is_fresh
    assert cursor.build_request(ROOM, SHARED) == ReadRequest(7, 50, ROOM, Page(SAVED, 10), None, None)


def test_a_partition_is_in_lockstep_after_two_whole_pages():
    cursor = claimed()
    alone(cursor, N1, [], [])
    assert not cursor.is_fresh
    assert not cursor.is_in_lockstep
    assert cursor.build_request(ROOM, SHARED).base_page == N1
    together(cursor, N2, [], [])
    assert cursor.is_in_lockstep
    assert cursor.build_request(ROOM, N2).base_page == N2


def test_room_is_never_negative():
    assert claimed().build_request(-4, None).room == 0


def test_a_caught_up_cursor_asks_from_the_floor_of_the_shared_page_and_one_behind_from_its_last_id():
    page = Page("9:9:", 90, is_complete=True)
    cursor = Cursor(7, 50, None, ReadMode.CAUGHT_UP)
    assert cursor.build_request(ROOM, page).last_id == 90
    assert cursor.last_id == 50
    assert cursor.build_request(ROOM, Page("9:9:", 40)).last_id == 50
    cursor.enter_mode(ReadMode.BEHIND, None)
    assert cursor.build_request(ROOM, page).last_id == 50
    cursor.keep_page(page)
    assert cursor.build_request(ROOM, None).last_id == 50


def test_the_scan_starts_at_the_lower_of_floor_and_last_id():
    assert claimed(last_id=50).find_search_start(10) == 10
    assert claimed(last_id=50).find_search_start(90) == 50


def test_new_records_move_the_last_id():
    cursor = lockstep()
    reading = together(cursor, N1, [40], [60, 61, 62])
    assert (reading.page, reading.late_ids, reading.new_ids, reading.raised_to) == (N1, [40], [60, 61, 62], 0)
    assert cursor.last_id == 62
    assert cursor.may_have_backlog, "there may be more"


def test_without_room_a_page_is_full():
    cursor = lockstep()
    assert together(cursor, N1, [], [], room=0).raised_to == 0
    assert cursor.may_have_backlog


def test_a_page_with_room_to_spare_raises_the_last_id_to_its_floor():
    cursor = lockstep()
    assert together(cursor, N1, [], [60]).raised_to == N1.floor
    assert cursor.last_id == N1.floor
    assert not cursor.may_have_backlog


def test_a_floor_below_the_last_id_raises_nothing():
    cursor = lockstep(last_id=500)
    assert together(cursor, N1, [], []).raised_to == 0
    assert cursor.last_id == 500


def test_too_many_late_records_come_in_pieces_of_the_first_page():
    cursor = lockstep()
    first = together(cursor, N1, [20, 21, 22], [60])
    assert (first.page, first.late_ids, first.new_ids, first.is_last, first.is_piece) == (N1, [20, 21], [], False, True)
    assert cursor.build_request(ROOM, N1) == ReadRequest(7, 50, 0, SHARED, N1.snapshot, 21)
    assert cursor.find_search_start(0) == 21

    second = together(cursor, N2, [22, 23, 24], [], shared=N1)
    assert (second.page, second.late_ids, second.is_last) == (N1, [22, 23], False)
    last = together(cursor, N3, [24], [], shared=N2)
    assert (last.page, last.late_ids, last.new_ids, last.is_last) == (N1, [24], [], True)
    assert cursor.build_request(ROOM, N3) == ReadRequest(7, 50, ROOM, N1, None, None)
    assert cursor.may_have_backlog
    assert cursor.last_id == 50


def test_a_long_range_comes_in_pieces_that_end_after_a_stretch():
    cursor = claimed(last_id=2_500, floor=100)
    ends = []
    for _ in range(2):
        reading = alone(cursor, N1, [], [2_600])
        assert (reading.new_ids, reading.is_last) == ([], False)
        ends.append(cursor.cut_page.read_to)
    assert ends == [1_100, 2_100]
    assert alone(cursor, N2, [2_200], []) == rules.PagePart(N1, [2_200], [], 0, True, True)
    assert cursor.is_fresh, "it was not read whole, so it is not to be read with the others yet"


@given(st.sets(st.integers(1, 50), max_size=30), st.integers(1, 5), st.integers(1, 60))
def test_pieces_bring_every_late_record_once_and_in_order(late, cap, stretch):
    rules.MAX_LATE, rules.STRETCH = cap, stretch  # put back by the fixture
    cursor, seen, last = claimed(last_id=50, floor=0), [], False
    for _ in range(200):
        start = cursor.cut_page.read_to if cursor.cut_page else 0
        rows = [id for id in sorted(late) if start < id <= min(50, start + stretch)][: cap + 1]
        reading = alone(cursor, N1, rows, [])
        seen += reading.late_ids
        last = reading.is_last
        if last:
            break
    assert last
    assert seen == sorted(late)


def test_open_transactions_of_a_cut_page_do_not_cut_the_next_page_again():
    """Transaction 8 stays open, with a bound far below: by the floor of its page every next page would be cut again."""
    cursor = claimed(last_id=2_500, floor=100)
    first = Page("8:20:8", 2_490, ((8, 100),))
    for _ in range(3):
        alone(cursor, first, [], [])
    asked = cursor.build_request(ROOM, None)
    assert asked.base_page == first
    assert asked.until_snapshot is None
    reading = cursor.take_page(asked, Page("8:30:8", 2_600, ((8, 100),)), 2_490, [], [2_600], together=False)
    assert (reading.new_ids, reading.is_piece) == ([2_600], False)


NEXT = {
    "FRESH": {"BACKLOG", "BEHIND", "FRESH_CUT"},
    "FRESH_CUT": {"FRESH"},
    "BACKLOG": {"BEHIND", "CAUGHT_UP", "CUT"},
    "BEHIND": {"BACKLOG", "CAUGHT_UP", "CUT"},
    "CAUGHT_UP": {"BACKLOG", "BEHIND", "CUT"},
    "CUT": {"BACKLOG"},
}


def entered(mode: ReadMode) -> Cursor:
    """A cursor in this mode, in lockstep where that may be."""
    base, cut = base_and_cut(mode)
    return Cursor(7, 50, base, mode, cut)


def base_and_cut(mode: ReadMode) -> tuple[Page | None, CutPage | None]:
    in_lockstep = mode in (ReadMode.BACKLOG, ReadMode.BEHIND, ReadMode.CAUGHT_UP)
    return None if in_lockstep else N1, CutPage(N1, 20) if mode.name.endswith("CUT") else None


@pytest.mark.parametrize("before", ReadMode)
@pytest.mark.parametrize("after", ReadMode)
def test_a_cursor_changes_its_mode_only_as_the_diagram_shows(before, after):
    cursor, (base, cut) = entered(before), base_and_cut(after)
    if after is before or after.name in NEXT[before.name]:
        cursor.enter_mode(after, base, cut)
        assert (cursor.mode, cursor.base_page, cursor.cut_page) == (after, base, cut)
    else:
        with pytest.raises(AssertionError):
            cursor.enter_mode(after, base, cut)


@pytest.mark.parametrize(
    ("mode", "base", "cut"),
    [
        (ReadMode.CUT, N1, None),
        (ReadMode.CUT, None, CutPage(N1, 20)),
        (ReadMode.BACKLOG, None, CutPage(N1, 20)),
        (ReadMode.CAUGHT_UP, N1, None),
    ],
)
def test_a_mode_cannot_be_entered_with_the_base_or_the_cut_of_another_mode(mode, base, cut):
    with pytest.raises(AssertionError):
        entered(ReadMode.BACKLOG).enter_mode(mode, base, cut)


def test_only_a_caught_up_cursor_takes_a_quick_poll_and_it_cannot_stay_behind():
    for mode in set(ReadMode) - {ReadMode.CAUGHT_UP}:
        with pytest.raises(AssertionError):
            entered(mode).take_quick(N1, [])
    with pytest.raises(AssertionError):
        entered(ReadMode.CAUGHT_UP).keep_page(N1)
