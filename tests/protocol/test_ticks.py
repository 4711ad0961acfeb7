"""The time between two ticks."""

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.intervals import (
    AWAIT_DIVISOR,
    AWAIT_TICK,
    FEW_PARTITIONS,
    LONGEST_TICK,
    SHORTEST_TICK,
    TICK,
    longest_tick,
    next_tick_delay,
)

LEASE = 6.0
SECONDS = st.floats(min_value=0, max_value=1e6)
DUE = st.none() | SECONDS


@given(DUE, st.none() | SECONDS)
def test_a_tick_comes_four_times_a_second_at_least_and_never_at_once(soonest, awaited):
    assert AWAIT_TICK <= next_tick_delay(soonest, awaited) <= TICK


@given(SECONDS)
def test_the_next_tick_comes_soon_when_something_is_due_soon(soonest):
    assert next_tick_delay(soonest, None) == min(TICK, max(SHORTEST_TICK, soonest))


@given(DUE, SECONDS)
def test_a_process_that_awaits_a_partition_ticks_often_at_first_and_later_at_the_usual_interval(soonest, awaited):
    assert next_tick_delay(soonest, awaited) <= max(AWAIT_TICK, awaited / AWAIT_DIVISOR)
    assert next_tick_delay(soonest, AWAIT_DIVISOR * TICK) == next_tick_delay(soonest, None)


def test_a_process_that_owns_few_partitions_or_none_ticks_more_rarely():
    assert longest_tick(0, LEASE, calm=True) == LONGEST_TICK
    assert {longest_tick(owned, LEASE, calm=True) for owned in range(FEW_PARTITIONS, 257)} == {TICK}
    assert longest_tick(FEW_PARTITIONS // 2, LEASE, calm=True) == 2 * TICK
    assert longest_tick(1, LEASE, calm=True) == LONGEST_TICK
    assert next_tick_delay(None, None, LONGEST_TICK) == LONGEST_TICK
    assert next_tick_delay(LONGEST_TICK + 1, None, LONGEST_TICK) == LONGEST_TICK


def test_a_process_that_would_miss_a_plan_or_runs_a_handler_ticks_at_the_usual_interval():
    assert {longest_tick(owned, LEASE, calm=False) for owned in range(257)} == {TICK}


@given(st.integers(0, 256), st.floats(0.1, 60), st.booleans())
def test_no_process_sleeps_so_long_that_it_looks_dead(owned, lease, calm):
    assert TICK <= longest_tick(owned, lease, calm=calm) <= max(TICK, lease / 3)
