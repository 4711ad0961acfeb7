"""Fences, bounds, floors, and when nothing can be unread."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.horizon import Fence, Horizon, Snapshot, build_fence

snapshots = st.builds(
    lambda xmin, ahead: snapshot(xmin + max(ahead, default=0) + 1, *sorted(xmin + each for each in ahead)),
    st.integers(3, 2**40),
    st.sets(st.integers(0, 100), max_size=20),
)


def snapshot(xmax: int, *xip: int) -> Snapshot:
    return Snapshot.parse(f"{min(xip, default=xmax)}:{xmax}:{','.join(map(str, xip))}")


def horizon(*fences: tuple[int, int], floor: int = 0) -> Horizon:
    made = Horizon()
    for xid, drawn in fences:
        made.add_fence(Fence(xid, drawn))
    made.note_claimed_floor(floor)
    return made


@given(snapshots)
def test_a_snapshot_is_read_as_it_is_written(snapshot):
    assert Snapshot.parse(snapshot.text) == snapshot
    assert all(snapshot.xmin <= xid < snapshot.xmax for xid in snapshot.xip)


@given(st.integers(4, 2**45), st.integers(0, 2**20), st.integers(0, 2**40))
def test_a_fence_widens_the_32_bits_of_the_next_xid(xmax, running, drawn):
    """`running` transactions at or above xmax have an xid already."""
    following = xmax + running
    assert build_fence(drawn, (following - 3) % 2**32, xmax) == Fence(following - 1, drawn)


def test_the_bound_of_a_transaction_is_the_newest_fence_before_it():
    made = horizon((10, 100), (20, 200), (30, 300))
    assert made.build_page(snapshot(40, 20)).floor == 100, "a fence with U = x says nothing about x"
    assert made.build_page(snapshot(40, 21)).floor == 200
    assert made.build_page(snapshot(31)).floor == 300


def test_a_running_transaction_at_xmax_or_above_is_bounded_though_it_is_not_listed():
    """xmax is one past the highest completed xid: 25 may be running, with ids above 100 only."""
    made = horizon((10, 100), (30, 300))
    assert made.build_page(snapshot(25)).floor == 100


def test_a_bound_stays_as_it_was_when_the_transaction_was_first_seen():
    made = horizon((10, 100))
    assert made.build_page(snapshot(20, 15)).floor == 100
    made.note_claimed_floor(500)
    assert made.build_page(snapshot(40, 15)).floor == 100
    assert made.build_page(snapshot(40, 16)).floor == 500, (
        "16 is seen after the claim, so the claimed floor holds for it"
    )


def test_the_bound_of_an_open_transaction_is_found_once_however_many_polls_list_it(monkeypatch):
    found, find = list[int](), Horizon._find_bound
    monkeypatch.setattr(Horizon, "_find_bound", lambda made, xid: found.append(xid) or find(made, xid))
    made, polls = horizon((10, 100)), 5
    for number in range(polls):
        seen = snapshot(1_000 + number, *range(20, 620))
        made.share_page(seen, made.build_page(seen))
    # Each poll also finds the bound of the transactions that come after it.
    assert len(found) == 600 + polls


def test_a_fence_that_knows_no_more_ids_is_dropped_and_the_older_kept():
    made = horizon((10, 100), (20, 100))
    assert made.build_page(snapshot(15)).floor == 100


def test_the_newest_fence_below_xmax_is_kept_with_all_newer_ones():
    made = horizon((10, 100), (20, 200), (30, 300), (40, 400))
    page = snapshot(25)
    made.share_page(page, made.build_page(page))
    assert made.fences == [Fence(20, 200), Fence(30, 300), Fence(40, 400)]
    assert made.shared_page is not None
    assert made.shared_page.settled_id == 200


def test_bounds_of_transactions_that_are_over_are_forgotten():
    made = horizon((10, 100), (16, 200))
    first = snapshot(20, 12, 15)
    made.share_page(first, made.build_page(first))
    assert made.list_open_xids() == [12, 15]
    second = snapshot(30, 15)
    made.share_page(second, made.build_page(second))
    assert made.list_open_xids() == [15]


def test_an_open_transaction_that_can_have_drawn_no_id_so_far_is_left_out():
    """25 began after the fence that knows 200 ids, and no more are drawn. 12 began before, and may have drawn one."""
    assert settled_at(snapshot(30, 12, 25), (10, 100), (20, 200)).list_open_xids() == [12]
    assert settled_at(snapshot(30, 12, 25), (10, 200)).list_open_xids() == []
    assert settled_at(snapshot(30, 12), (20, 200)).list_open_xids() == [12], "no fence before it"


@given(
    st.lists(st.sampled_from(["fence", "page", "begin", "draw", "end"]), max_size=40),
    st.data(),
)
def test_what_becomes_visible_while_no_id_is_drawn_was_written_by_a_listed_transaction(steps, data):
    """Against the server itself: who has drawn which ids, and who has ended."""
    made, next_xid, drawn, opened, ended = Horizon(), 10, 0, dict[int, list[int]](), 9
    made.add_fence(Fence(next_xid - 1, drawn))
    for step in steps:
        if step == "fence":
            made.add_fence(Fence(next_xid - 1, drawn))
        elif step == "begin":
            opened[next_xid], next_xid = [], next_xid + 1
        elif step == "draw" and opened:
            drawn += 1
            opened[data.draw(st.sampled_from(sorted(opened)))].append(drawn)
        elif step == "end" and opened:
            xid = data.draw(st.sampled_from(sorted(opened)))
            del opened[xid]
            ended = max(ended, xid)
        elif step == "page":
            page = snapshot(ended + 1, *(xid for xid in sorted(opened) if xid <= ended))
            made.add_fence(Fence(next_xid - 1, drawn))
            made.share_page(page, made.build_page(page))
            may_come = {xid for xid, ids in opened.items() if ids}
            if made.is_idle(drawn, ended=False):
                assert may_come <= {*made.list_open_xids()}


def test_nothing_is_listed_before_the_first_page():
    assert Horizon().list_open_xids() == []
    assert not Horizon().is_idle(0, False)


@pytest.mark.parametrize(("fences", "floor", "last_id", "highest"), [
    ([], 0, 7, 7), ([(10, 100)], 0, 7, 100), ([(10, 100)], 0, 700, 700), ([(10, 100)], 300, 7, 300),
])  # fmt: skip
def test_the_ceiling_is_above_everything_remembered(fences, floor, last_id, highest):
    assert horizon(*fences, floor=floor).find_ceiling(last_id) == highest


def settled_at(page: Snapshot, *fences: tuple[int, int], floor: int = 0) -> Horizon:
    made = horizon(*fences, floor=floor)
    made.share_page(page, made.build_page(page))
    return made


def test_nothing_is_unread_while_no_id_is_drawn_and_no_listed_transaction_ends():
    made = settled_at(snapshot(30, 25), (10, 100), (20, 200))
    assert made.is_idle(200, ended=False)
    assert not made.is_idle(201, ended=False)
    assert not made.is_idle(200, ended=True)


def test_a_fence_at_or_above_xmax_does_not_make_the_horizon_idle():
    """A transaction with xid 30 may run: not listed, with an id up to 200."""
    assert not settled_at(snapshot(30), (10, 100), (30, 200)).is_idle(200, ended=False)


def test_an_id_that_was_drawn_between_the_fence_and_the_page_is_unread():
    """The page looked up to its ceiling only; a later fence with the same ids says nothing about it."""
    made = settled_at(snapshot(30), (10, 100))
    made.add_fence(Fence(29, 101))
    assert not made.is_idle(101, ended=False)


def test_a_claimed_floor_makes_the_horizon_idle_as_a_fence_does():
    assert settled_at(snapshot(30), floor=50).is_idle(50, ended=False)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=10), st.integers(0, 200), snapshots
)
def test_the_floors_of_successive_pages_never_fall(steps, floor, first):
    made = horizon(floor=floor)
    xid, drawn, floors = first.xmax - 1, floor, []
    page = first
    for xids, ids in steps:
        made.add_fence(Fence(xid, drawn))
        read = made.build_page(page)
        floors.append(read.floor)
        made.share_page(page, read)
        xid, drawn = xid + xids, drawn + ids
        page = snapshot(xid + 1, *page.xip[1:], *([xid] if ids % 2 and xid > page.xmax else []))
    assert floors == sorted(floors)
