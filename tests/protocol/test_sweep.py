"""The sweep: who takes part, where it looks, and when there is more."""

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.cursor import ReadRequest
from partbox.protocol.horizon import Page
from partbox.protocol.sweep import MIN_PARTITIONS, STRETCH, Sweep, plan_brief_sweep, plan_sweep

PAGE = Page("1:1:", 0)
HI = 10_000_000

Asked = st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 160)), max_size=256)


def asks(places: list[tuple[int, int]]) -> list[ReadRequest]:
    """For partitions from 0 on, with these last ids and rooms."""
    return [ReadRequest(number, last_id, room, PAGE, None, None) for number, (last_id, room) in enumerate(places)]


def test_partitions_whose_last_ids_are_close_together_are_swept_from_the_lowest_one():
    swept = plan_sweep(asks([(1_000 + number, 40) for number in range(256)]), HI)
    assert swept is not None
    assert swept.start == 1_000
    assert swept.end == 1_000 + STRETCH * 40 * 256
    assert swept.max_records == 40 * 256
    assert swept.last_ids == {number: 1_000 + number for number in range(256)}


def test_a_partition_that_is_far_behind_or_far_ahead_does_not_take_part_in_the_sweep():
    places = [(5_000_000, 40)] * 200
    swept = plan_sweep(asks([(0, 40), *places, (9_000_000, 40)]), HI)
    assert swept is not None
    assert swept.last_ids.keys() == set(range(1, 201))
    assert swept.start == 5_000_000
    assert swept.waiting_partitions == set()


def test_a_sweep_begins_at_the_lowest_id_where_enough_partitions_are_close_together():
    swept = plan_sweep(asks([(1_000, 40)] * MIN_PARTITIONS + [(5_000_000, 40)] * 192), HI)
    assert swept is not None
    assert swept.last_ids.keys() == set(range(MIN_PARTITIONS))
    swept = plan_sweep(asks([(1_000, 40)] * (MIN_PARTITIONS - 1) + [(5_000_000, 40)] * 193), HI)
    assert swept is not None
    assert swept.last_ids.keys() == set(range(MIN_PARTITIONS - 1, 256))


def test_a_partition_that_is_a_little_ahead_of_the_sweep_waits_for_the_others():
    reach = STRETCH * 40 * 256
    given = asks([(0, 40)] * 253 + [(reach - 1, 40), (reach, 40), (2 * reach, 40)])
    swept = plan_sweep(given, HI)
    assert swept is not None
    assert swept.waiting_partitions == {254}
    assert [swept.compute_room(ask, 500) for ask in given[252:]] == [500, 500, 0, 40]
    assert swept.max_records == 255 * 40  # with what would have been for the one that waits


def test_a_partition_that_is_behind_gets_more_than_those_in_the_sweep_so_that_it_catches_up():
    given = asks([(0, 40), (0, 0)] + [(5_000_000, 40)] * 200)
    swept = plan_sweep(given, HI)
    assert swept is not None
    assert swept.compute_room(given[0], 10_000) == 40 + 200 * 40 // 2
    assert swept.compute_room(given[0], 500) == 500
    assert swept.compute_room(given[1], 500) == 0
    assert swept.max_records == 200 * 40 // 2


def test_fewer_than_a_quarter_of_all_partitions_are_not_swept_together():
    places = [(7, 40)] * MIN_PARTITIONS
    assert plan_sweep(asks(places), HI) is not None
    assert plan_sweep(asks(places[1:]), HI) is None
    assert plan_sweep(asks([*places[1:], (7, 0)]), HI) is None  # one without room reads nothing
    assert plan_sweep(asks([*places[1:], (5_000_000, 40)]), HI) is None


def test_a_partition_in_the_sweep_gets_no_new_records_outside_it():
    swept = Sweep(0, 10, 5, {1: 0, 2: 0})
    assert swept.compute_rooms_beside(asks([(0, 3)] * 4)) == [3, 0, 0, 3]


def test_a_sweep_is_cut_by_its_number_of_records_or_by_a_last_id_below_the_ceiling():
    swept = Sweep(0, 10, 5, {1: 0})
    assert not swept.is_cut(4, 10)
    assert swept.is_cut(5, 10)
    assert swept.is_cut(4, 11)


def test_one_brief_sweep_finds_all_new_ids_if_they_are_no_more_than_the_partitions():
    places = [(1_000 + number, 300) for number in range(256)]
    swept = plan_brief_sweep(asks([(1_000, 0), *places[1:]]), 1_256)
    assert swept is not None
    assert (swept.start, swept.end) == (1_001, 1_256)
    assert swept.last_ids == {number: 1_000 + number for number in range(1, 256)}
    assert not swept.is_cut(255, 1_256)
    assert not swept.waiting_partitions
    assert plan_brief_sweep(asks([(1_000, 0), *places[1:]]), 1_257) is None


def test_no_partition_gets_more_from_a_brief_sweep_than_it_has_room_for():
    assert plan_brief_sweep(asks([(1_000, 3)] * 10), 1_003) is not None
    assert plan_brief_sweep(asks([(1_000, 2), *[(1_000, 3)] * 9]), 1_003) is None


def test_a_poll_without_room_for_new_records_searches_for_none():
    swept = plan_brief_sweep(asks([(1_000, 0)] * 3), 1_003)
    assert swept is not None
    assert (swept.start, swept.last_ids) == (swept.end, {})


@given(Asked, st.integers(0, 400_000))
def test_a_sweep_asks_for_no_more_than_there_is_room_for_above_the_last_id_of_each_partition(places, hi):
    given = asks(places)
    swept = plan_sweep(given, hi)
    if swept is None:
        return
    rooms = {ask.partition: ask.room for ask in given}
    assert len(swept.last_ids) >= MIN_PARTITIONS
    assert 0 < swept.max_records <= sum(rooms.values())
    assert all(rooms[number] > 0 for number in swept.last_ids)
    assert all(swept.start <= last_id for last_id in swept.last_ids.values())
    assert swept.end <= hi
    rooms_beside = swept.compute_rooms_beside([ask._replace(room=swept.compute_room(ask, 1_000_000)) for ask in given])
    assert swept.max_records + sum(rooms_beside) <= sum(rooms.values())  # nobody's bytes are exceeded
    assert all(
        room == 0 for room, ask in zip(rooms_beside, given, strict=True) if ask.partition in swept.waiting_partitions
    )
    assert not swept.waiting_partitions & swept.last_ids.keys()
