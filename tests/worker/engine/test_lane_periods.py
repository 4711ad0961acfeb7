"""Tests of the time in which new events get lanes at once."""

from hypothesis import given
from hypothesis import strategies as st

from partbox.worker.engine.split_period import CONFIRM_WITHIN, LONGEST, SHORTEST, SplitPeriod

BETWEEN = SHORTEST / 100


def length(period: SplitPeriod, begins: float) -> float:
    """The length of a period that begins now."""
    period.begin(begins)
    now = begins
    while period.is_active:
        now += BETWEEN
        period.end_if_over(now)
    return now - begins


def test_a_period_is_short_at_first_and_over_when_its_time_is() -> None:
    period = SplitPeriod()
    assert not period.is_active
    period.begin(7.0)
    period.end_if_over(7.0 + SHORTEST - BETWEEN)
    assert period.is_active
    period.end_if_over(7.0 + SHORTEST + BETWEEN)
    assert not period.is_active


def test_a_split_period_that_begins_just_after_another_is_twice_as_long_up_to_the_longest() -> None:
    period, now, lengths = SplitPeriod(), 7.0, list[float]()
    for _ in range(8):
        lengths.append(length(period, now))
        now += lengths[-1] + SHORTEST
    for number, took in enumerate(lengths):
        assert abs(took - min(LONGEST, SHORTEST * 2**number)) < 2 * BETWEEN


def test_a_split_period_that_begins_long_after_another_is_short_again() -> None:
    period = SplitPeriod()
    first = length(period, 7.0)
    second = length(period, 7.0 + first)
    assert second > first
    third = length(period, 7.0 + first + second + CONFIRM_WITHIN * second + 2 * BETWEEN)
    assert abs(third - first) < 2 * BETWEEN


@given(st.lists(st.floats(0, SHORTEST * 0.9), max_size=5))
def test_shared_lanes_that_are_split_during_a_split_period_do_not_make_it_longer(more: list[float]) -> None:
    period = SplitPeriod()
    period.begin(7.0)
    for seconds in sorted(more):
        period.begin(7.0 + seconds)
    period.end_if_over(7.0 + SHORTEST + BETWEEN)
    assert not period.is_active
