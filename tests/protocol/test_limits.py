"""The reading and the printing of a handler's limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.limits import FORM, Limit, Rate, rate_of


@pytest.mark.parametrize(
    ("text", "rate", "printed"),
    [
        ("100/s", 100.0, "100/s"),
        ("6000/m", 100.0, "100/s"),
        ("90/m", 1.5, "1.5/s"),
        (" 2.5 / s ", 2.5, "2.5/s"),
        ("30/m", 0.5, "30/m"),
        ("5/h", 5 / 3600, "5/h"),
        ("0.5/h", 0.5 / 3600, "0.5/h"),
    ],
)
def test_a_rate_is_read_and_printed_in_the_unit_that_people_use(text, rate, printed):
    assert rate_of(text) == pytest.approx(rate)
    assert str(rate_of(text)) == printed


@given(st.integers(1, 10**9), st.sampled_from("smh"))
def test_a_printed_rate_is_read_back_as_nearly_the_same_rate(calls, unit):
    rate = rate_of(f"{calls}/{unit}")
    assert rate_of(str(rate)) == pytest.approx(rate, rel=1e-6)
    assert rate_of(rate) is rate


@pytest.mark.parametrize("text", ["", "100", "0/s", "-5/s", "5/d", "5/2s", "1e5/s", "nan/s", 100, None, True])
def test_an_invalid_rate_is_refused_with_the_forms_that_are_valid(text):
    with pytest.raises(ValueError, match="write it like") as refused:
        rate_of(text)
    assert str(refused.value) == FORM


def test_a_limit_without_a_number_bounds_nothing():
    assert not Limit(by="tenant_id").is_limited
    assert Limit(Rate(1)).is_limited
    assert Limit(at_once=1).is_limited
