import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.intervals import (
    FULL_BEAT_NODES,
    FULL_SHARE_NODES,
    MAX_BEAT_OF_LEASE,
    beat_interval,
    compute_turn_chance,
)


@given(st.integers(0, FULL_SHARE_NODES))
def test_each_of_a_few_nodes_takes_every_turn(nodes: int) -> None:
    assert compute_turn_chance(nodes) == 1.0


@given(st.integers(FULL_SHARE_NODES, 10_000))
def test_many_nodes_take_as_many_turns_together_as_a_few(nodes: int) -> None:
    assert nodes * compute_turn_chance(nodes) == pytest.approx(FULL_SHARE_NODES)


@given(st.integers(0, FULL_BEAT_NODES), st.floats(0.01, 10), st.floats(0.1, 60))
def test_up_to_a_hundred_nodes_send_heartbeats_at_the_configured_interval(
    nodes: int, heartbeat: float, lease: float
) -> None:
    assert beat_interval(nodes, heartbeat, lease) == heartbeat


@given(st.integers(0, 10_000), st.floats(0.01, 10), st.floats(0.1, 60))
def test_more_nodes_send_heartbeats_less_often_but_still_four_times_a_lease(
    nodes: int, heartbeat: float, lease: float
) -> None:
    pause = beat_interval(nodes, heartbeat, lease)
    assert heartbeat <= pause <= max(heartbeat, MAX_BEAT_OF_LEASE * lease)
    assert pause <= beat_interval(nodes + 1, heartbeat, lease)


def test_two_hundred_nodes_send_heartbeats_half_as_often_unless_the_lease_needs_more() -> None:
    assert beat_interval(200, 1.0, 20.0) == 2.0
    assert beat_interval(200, 1.0, 6.0) == pytest.approx(1.32)
