"""Values of `limit_by` are plain, whatever an application returns: to compare one runs no code of the application."""

import sys
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.limit_values import LONGEST, UnfitValueError, to_limit_value


def refuse(self, *_):
    raise SystemExit("do not ask")


ODD = dict.fromkeys(("__eq__", "__hash__", "__bool__", "__str__", "__repr__", "__len__", "__iter__", "__lt__"), refuse)
Text, Number, Id, Several = (type(f"Odd{each.__name__}", (each,), ODD) for each in (str, int, UUID, tuple))


class Tier(Enum):
    GOLD = object()
    __eq__ = __hash__ = __str__ = __repr__ = refuse


class Region(StrEnum):
    EU = "eu"


class Size(IntEnum):
    LARGE = 3


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.text(max_size=LONGEST) | st.uuids(),
    lambda parts: st.lists(parts, max_size=5).map(tuple),
    max_leaves=5,
)


def depth(value):
    return 1 + max(map(depth, value), default=0) if isinstance(value, tuple) else 0


@given(PLAIN.filter(lambda value: depth(value) <= 4))
def test_a_plain_value_stays_as_it_is(value):
    assert to_limit_value(value) == value


@pytest.mark.parametrize(
    ("odd", "plain"),
    [
        (Text("a"), "a"),
        (Number(7), 7),
        (Id("0af76519-16cd-43dd-8448-eb211c80319c"), UUID("0af76519-16cd-43dd-8448-eb211c80319c")),
        (Several((Text("a"), (Number(7), None))), ("a", (7, None))),
        (Tier.GOLD, "Tier.GOLD"),
        (Region.EU, "eu"),
        (Size.LARGE, 3),
    ],
    ids=["str", "int", "UUID", "tuple", "Enum", "StrEnum", "IntEnum"],
)
def test_a_value_of_a_subclass_whose_methods_all_raise_becomes_the_plain_value(odd, plain):
    found = to_limit_value(odd)
    assert found == plain
    assert type(found) is type(plain)


def everything_in(value):
    return [each for part in value for each in everything_in(part)] if isinstance(value, tuple) else [value]


@given(st.text(min_size=1), st.integers(0, 10**6), st.integers(1_000, 100_000))
def test_a_long_text_and_a_large_number_become_short_and_stay_distinct(text, number, times):
    long, wide = text * max(times, LONGEST), 10**5_000 + number
    found = [to_limit_value(each) for each in (long, long + "x", wide, wide + 1)]
    assert len(set(found)) == 4
    assert all(len(str(each)) <= 2 * LONGEST for each in found)
    assert to_limit_value(long) == found[0]
    assert to_limit_value("\ud800" * 1_000) != to_limit_value("\ud801" * 1_000)


class Unknown:  # hashable, and comparing two has no truth value, as in pandas
    __hash__ = object.__hash__

    def __eq__(self, other):
        return self

    __bool__ = refuse


NESTED: tuple = ()
for _ in range(sys.getrecursionlimit() * 2):
    NESTED = (NESTED,)


@pytest.mark.parametrize(
    "value",
    [Unknown(), float("nan"), 1.0, b"a", [], {}, frozenset(), Fraction(1), range(3), (1, [2]), NESTED, ("a",) * 17],
)
def test_any_other_value_is_unfit(value):
    with pytest.raises(UnfitValueError):
        to_limit_value(value)
