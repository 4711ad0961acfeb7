"""Events as the comparison takes them, from classes, and classes that are made up."""

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, JsonValue, create_model

from partbox.catalogue.comparison import EventForm
from partbox.catalogue.event_form import build_event_form
from partbox.events.declaration import EventType


def form(cls: Any, *, version: int = 1, aggregate_type: str = "Order", key: str = "id") -> EventForm:
    """The form of the event `OrderPlaced`, whose class this is."""
    return build_event_form(EventType("OrderPlaced", cls, aggregate_type, key, None, version))


class Shape(NamedTuple):
    """A type as an annotation, and its values."""

    annotation: Any
    values: st.SearchStrategy[Any]


Fields = dict[str, tuple[Shape, Any]]
"""By name its shape, and its default; `...` is none."""

INTEGERS = st.integers(-(2**53), 2**53)
TEXTS = st.text("abcäöü0", max_size=4)


def _between(low: int, more: int) -> Shape:
    return Shape(Annotated[int, Field(ge=low, le=low + more)], st.integers(low, low + more))


def _of_length(least: int, more: int) -> Shape:
    kind = Annotated[str, Field(min_length=least, max_length=least + more)]
    return Shape(kind, st.text("xyz", min_size=least, max_size=least + more))


PLAIN = [
    Shape(int, INTEGERS),
    Shape(float, st.floats(allow_nan=False, allow_infinity=False, width=32)),
    Shape(str, TEXTS),
    Shape(bool, st.booleans()),
    Shape(JsonValue, st.none() | INTEGERS | TEXTS),
    Shape(datetime, st.datetimes()),
    Shape(date, st.dates()),
    Shape(UUID, st.uuids()),
    Shape(Decimal, st.decimals("-999", "999", places=2)),
    Shape(Annotated[int, Field(gt=0)], st.integers(1, 9)),
    Shape(Annotated[int, Field(ge=1)], st.integers(1, 9)),
    Shape(Annotated[int, Field(multiple_of=6)], st.integers(-9, 9).map(lambda each: each * 6)),
    Shape(Annotated[int, Field(multiple_of=3)], st.integers(-9, 9).map(lambda each: each * 3)),
    Shape(Annotated[str, Field(pattern="^[a-z]+$")], st.text("abc", min_size=1, max_size=3)),
]
LITERALS = st.lists(st.sampled_from(["x", "y", "abc", 1, 2, 6]), min_size=1, max_size=3, unique_by=repr)
SIMPLE = st.one_of(
    st.sampled_from(PLAIN),
    st.builds(_between, st.integers(-2, 2), st.integers(0, 2)),
    st.builds(_of_length, st.integers(0, 2), st.integers(0, 2)),
    LITERALS.map(lambda values: Shape(Literal[tuple(values)], st.sampled_from(values))),
)


def _list(each: Shape) -> Shape:
    return Shape(list[each.annotation], st.lists(each.values, max_size=3))  # type: ignore[name-defined]


def _short_list(each: Shape) -> Shape:
    kind = Annotated[list[each.annotation], Field(min_length=1, max_length=2)]  # type: ignore[name-defined]
    return Shape(kind, st.lists(each.values, min_size=1, max_size=2))


def _mapping(each: Shape) -> Shape:
    return Shape(dict[str, each.annotation], st.dictionaries(TEXTS, each.values, max_size=2))  # type: ignore[name-defined]


def _either(one: Shape, other: Shape) -> Shape:
    return Shape(one.annotation | other.annotation, one.values | other.values)


def _pair(one: Shape, other: Shape) -> Shape:
    return Shape(tuple[one.annotation, other.annotation], st.tuples(one.values, other.values))  # type: ignore[name-defined]


def _optional(each: Shape) -> Shape:
    return Shape(each.annotation | None, st.none() | each.values)


def model_of(fields: Fields, extra: str) -> Shape:
    """A pydantic model with these fields; `extra` says what it does with others."""
    given: Any = {name: (shape.annotation, default) for name, (shape, default) in fields.items()}
    model = create_model("Made", __config__=ConfigDict(extra=extra), **given)  # type: ignore[call-overload, typeddict-item]
    values = {name: shape.values for name, (shape, _) in fields.items()}
    return Shape(model, st.fixed_dictionaries(values).map(model.model_validate))


@st.composite
def fields_of(draw: Any, shapes: st.SearchStrategy[Shape]) -> Fields:
    names = draw(st.lists(st.sampled_from("abcd"), max_size=3, unique=True))
    return {name: draw(_field(shapes)) for name in names}


@st.composite
def _field(draw: Any, shapes: st.SearchStrategy[Shape]) -> tuple[Shape, Any]:
    shape = draw(shapes)
    return shape, draw(st.just(...) | shape.values)


EXTRA = st.sampled_from(["ignore", "ignore", "ignore", "forbid", "allow"])


def _composed(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
    return st.one_of(
        *(inner.map(each) for each in (_list, _short_list, _mapping, _optional)),
        *(st.builds(each, inner, inner) for each in (_either, _pair)),
        st.builds(model_of, fields_of(inner), EXTRA),
    )


SHAPES = st.recursive(SIMPLE, _composed, max_leaves=4)


@st.composite
def changed(draw: Any) -> tuple[type[BaseModel], Shape, Shape]:
    """Two forms of a model: most fields of the second are as they were."""
    old = draw(fields_of(SHAPES))
    new = {name: field if draw(st.integers(0, 3)) else draw(_field(SHAPES)) for name, field in old.items()}
    new |= draw(st.just({}) | fields_of(SHAPES))
    for name in draw(st.just([]) | st.lists(st.sampled_from("abcd"), max_size=1)):
        new.pop(name, None)
    extra = draw(EXTRA)
    return model_of(old, extra), model_of(new, draw(st.just(extra) | EXTRA))
