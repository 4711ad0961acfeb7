"""Segments of the log: which are made, which have had their time."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.segments import (
    LARGEST,
    MAX_AHEAD,
    MIN_AHEAD,
    MIN_LEAD,
    PROOF_LEAD,
    SEGMENTS_RETAINED,
    SMALL_DEFAULT,
    SMALLEST,
    DrawnIds,
    IdRange,
    Segment,
    compute_id_rate,
    compute_length_for_size,
    compute_segment_length,
    count_ahead,
    has_expired_records,
    list_empty_segments,
    list_expired,
    must_end_proof,
    plan_segments,
)

MILLION = 1_000_000
DAY = 86_400.0
NET = Segment("record_default", None, None, 0, None, None, None, None)


def empty(lower: int, upper: int) -> Segment:
    return Segment(f"record_{lower}", lower, upper, 0, None, None, None, None)


def full(lower: int, upper: int, oldest_age: float, newest_age: float, size: int = 100) -> Segment:
    return Segment(f"record_{lower}", lower, upper, size, lower, oldest_age, upper - 1, newest_age)


def test_the_id_rate_is_the_highest_of_late_and_a_burst_counts_as_an_hour():
    assert compute_id_rate([]) == 0
    assert compute_id_rate([DrawnIds(10_000, 100.0), DrawnIds(1_000_000, 7_200.0)]) == 1_000_000 / 7_200
    assert compute_id_rate([DrawnIds(1_000_000, 0.5)]) == 1_000_000 / 3_600


def test_ten_segments_span_the_retention_within_limits():
    assert compute_segment_length(500, 7 * DAY) == 30 * MILLION  # 302 million ids in the retention
    assert compute_segment_length(0, 7 * DAY) == SMALLEST
    assert compute_segment_length(1e9, 7 * DAY) == LARGEST
    assert compute_segment_length(500, float("inf")) == LARGEST
    assert compute_segment_length(500, 7 * DAY, 5.5 * MILLION) == 5 * MILLION


def test_ten_segments_fit_the_size_that_the_log_may_have():
    assert compute_length_for_size([full(0, 1_001, 9, 8, size=100_000)], 1_000_000) == 1_000
    assert compute_length_for_size([full(0, 1_001, 9, 8, size=100_000)], None) is None
    assert compute_length_for_size([empty(0, 1_000)], 1_000_000) is None


def test_missing_segments_are_added_after_the_last_one():
    there = [empty(0, 10 * MILLION), empty(10 * MILLION, 12 * MILLION), NET]
    assert count_ahead(there, 5 * MILLION) == 1
    assert plan_segments(there, 5 * MILLION, 0, 3 * MILLION) == [
        IdRange(12 * MILLION, 15 * MILLION),
        IdRange(15 * MILLION, 18 * MILLION),
    ]
    assert (
        plan_segments([*there[:2], empty(12, 13), empty(10**8, 10**9), empty(10**7, 10**8), NET], 9, 0, MILLION) == []
    )


def test_new_segments_last_for_hours_even_if_a_short_retention_makes_them_short():
    """Beside a pg_dump of an hour none can be attached."""
    assert len(plan_segments([NET], 5, 100, 2 * MILLION)) == MIN_AHEAD  # they take hours
    assert len(plan_segments([NET], 5, 1_000, 2 * MILLION)) == 8  # 14.4 million ids in four hours
    assert len(plan_segments([NET], 5, 100_000, 10 * MILLION)) == MAX_AHEAD
    there = [empty(lower * MILLION, (lower + 2) * MILLION) for lower in range(10, 22, 2)]
    assert len(plan_segments([*there, NET], 5, 1_000, 2 * MILLION)) == 2
    assert plan_segments([*there, NET], 5, 800, 2 * MILLION) == []


def test_a_segment_that_would_begin_too_near_begins_an_hour_of_ids_ahead():
    there = [empty(0, 10 * MILLION), NET]
    first = plan_segments(there, 10 * MILLION - MIN_LEAD, 0, MILLION)[0]
    assert first.lower == 10 * MILLION
    assert plan_segments(there, 10 * MILLION - MIN_LEAD + 1, 0, MILLION)[0].lower == 11 * MILLION
    assert plan_segments(there, 9 * MILLION, 1_000, MILLION)[0].lower == 13 * MILLION  # 3.6 million an hour


def test_what_the_default_segment_holds_lies_below():
    net = NET._replace(newest=14 * MILLION, size=8_192)
    assert plan_segments([empty(0, 10 * MILLION), net], 5, 0, MILLION)[0].lower == 15 * MILLION


def test_all_segments_of_the_retention_are_made_a_day_ahead_while_the_default_segment_is_large():
    net = NET._replace(newest=11 * MILLION, size=SMALL_DEFAULT + 1)
    made = plan_segments([empty(0, 10 * MILLION), net], 12 * MILLION, 0, MILLION)
    assert len(made) == MIN_AHEAD + SEGMENTS_RETAINED
    assert made[0].lower == 12 * MILLION + PROOF_LEAD
    assert plan_segments([net], 12 * MILLION, 100, MILLION)[0].lower == 21 * MILLION  # 8.64 million a day


def test_the_proof_of_a_segment_ends_before_its_ids_are_reached():
    assert not must_end_proof(IdRange(10 * MILLION, 11 * MILLION), 10 * MILLION - PROOF_LEAD // 2)
    assert must_end_proof(IdRange(10 * MILLION, 11 * MILLION), 10 * MILLION - PROOF_LEAD // 2 + 1)


@given(st.integers(0, 10**12), st.floats(0, 1e6), st.integers(0, 10**9), st.integers(0, 10**12), st.integers(1, 10**9))
def test_new_segments_lie_above_all_others_and_adjoin_each_other(drawn, pace, size, newest, end):
    there = [empty(0, end), NET._replace(newest=newest or None, size=size)]
    made = plan_segments(there, drawn, pace, MILLION)
    assert made[0].lower >= max(end, drawn + MIN_LEAD, newest + MIN_LEAD if newest else 0)
    assert all(one.upper == next.lower for one, next in pairwise(made))


def test_full_segments_expire_by_age_and_also_when_the_log_is_too_large():
    segments = [full(0, 10, 90, 80, 500), full(10, 20, 70, 30, 300), full(20, 30, 20, 10, 200), full(30, 40, 9, 1), NET]
    assert [(each.name, size) for each, size in list_expired(segments, 35, 50, None)] == [("record_0", False)]
    assert [(each.name, size) for each, size in list_expired(segments, 35, 50, 400)] == [
        ("record_0", False),
        ("record_10", True),
    ]
    assert [(each.name, size) for each, size in list_expired(segments, 35, 50, 299)][-1] == ("record_20", True)
    assert [each.name for each, _ in list_expired(segments, 18, 0, 1)] == ["record_0"]


def test_an_empty_segment_is_listed_only_when_no_record_can_come_to_it_any_more():
    segments = [empty(0, 10), full(10, 20, 1, 1), empty(20, 30), NET]
    assert [each.name for each in list_empty_segments(segments, 29)] == ["record_0", "record_20"]
    assert [each.name for each in list_empty_segments(segments, 28)] == ["record_0"]


def test_a_segment_has_expired_records_when_its_oldest_record_is_past_the_retention():
    assert has_expired_records(full(0, 10, 90, 10), 80)
    assert not has_expired_records(full(0, 10, 79, 10), 80)
    assert not has_expired_records(NET, 0)
