import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.rules.turns import AT_ONCE, share


@given(st.integers(0, AT_ONCE))
def test_each_of_a_few_nodes_takes_every_turn(nodes: int) -> None:
    assert share(nodes) == 1.0


@given(st.integers(AT_ONCE, 10_000))
def test_many_nodes_take_as_many_turns_together_as_a_few(nodes: int) -> None:
    assert nodes * share(nodes) == pytest.approx(AT_ONCE)
