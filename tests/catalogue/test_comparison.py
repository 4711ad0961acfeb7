"""Changes of events: those that break a reader are named, and those that break nobody pass."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import orjson
import pytest
from forms import changed, form
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from partbox.catalogue.comparison import EventChange, EventForm, compare_forms
from partbox.codecs import JsonCodec

VERSION = "make version=2 with @outbox.upcast(Placed, from_version=1)"


@dataclass
class Line:
    sku: str
    price: Decimal


@dataclass
class Address:
    street: str


@dataclass
class Placed:
    id: int
    total: int
    kind: Literal["web", "shop"]
    lines: list[Line]
    at: datetime
    address: Address
    tags: list[str] = field(default_factory=list)
    note: str | None = None
    parent: "Placed | None" = None


def edited(**fields: Any) -> type:
    """The class with other fields: None takes one away, and a tuple is its type and its default."""
    own = {name: each for name, each in Placed.__dataclass_fields__.items() if name not in fields}
    given: dict[str, Any] = {}
    for name, each in own.items():
        default = Field(default_factory=list) if name == "tags" else None if name in ("note", "parent") else ...
        given[name] = (each.type if name != "parent" else Placed | None, default)
    for name, each in fields.items():
        if each is not None:
            given[name] = each if isinstance(each, tuple) else (each, ...)
    made = create_model("Edited", **given)  # so that `parent` is not this one: pydantic 2.7 looks for it by its name
    made.__name__ = "Placed"
    return made


def changes(new: Any, old: Any = Placed) -> list[EventChange]:
    return compare_forms(form(old), form(new), ())


def breaks(new: Any, old: Any = Placed) -> list[str]:
    return [each.text for each in changes(new, old) if each.is_break]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    street: str


class Narrow(BaseModel):
    sku: str
    price: int


LOG, CONSUMERS, BOTH = "breaks reading the log", "breaks consumers", "breaks reading the log and consumers"

INCOMPATIBLE = {
    "a field is gone": (edited(total=None), [f"OrderPlaced.total is gone: {CONSUMERS}: keep it, or {VERSION}"]),
    "a field with a default is gone": (
        edited(note=None),
        [f"OrderPlaced.note is gone: {CONSUMERS}: keep it, or {VERSION}"],
    ),
    "a field is renamed": (
        edited(total=None, amount=int),
        [f"OrderPlaced.total is called amount now: {BOTH}: keep the old name as an alias of amount, or {VERSION}"],
    ),
    "a type is another": (
        edited(total=str),
        [
            f"OrderPlaced.total was an integer, and is text: {BOTH}: "
            f"leave it as it was, and add a field for the new form, or {VERSION}"
        ],
    ),
    "a type is narrower": (
        edited(note=(str, "")),
        [
            f"OrderPlaced.note was text or null, and is text: {LOG}: "
            f"leave it as it was, and add a field for the new form, or {VERSION}"
        ],
    ),
    "a type is wider": (
        edited(total=float),
        [
            f"OrderPlaced.total was an integer, and is a number: {CONSUMERS}: "
            f"leave it as it was, and add a field for the new form, or {VERSION}"
        ],
    ),
    "a new field is required": (
        edited(customer=str),
        [f"OrderPlaced.customer is new, and required: {LOG}: give it a default, or {VERSION}"],
    ),
    "an enum has lost a value": (
        edited(kind=Literal["web"]),
        [f"OrderPlaced.kind lost the value 'shop': {LOG}: leave the values as they are, or {VERSION}"],
    ),
    "an enum has one more": (
        edited(kind=Literal["web", "shop", "phone"]),
        [f"OrderPlaced.kind may be 'phone': {CONSUMERS}: leave the values as they are, or {VERSION}"],
    ),
    "text has become an enum": (
        edited(note=(Literal["a", "b"] | None, None)),
        [f"OrderPlaced.note takes only 'a', 'b' now: {LOG}: leave the values as they are, or {VERSION}"],
    ),
    "a bound is tighter": (
        edited(total=Annotated[int, Field(ge=1)]),
        [f"OrderPlaced.total had no minimum, and has minimum 1: {LOG}: leave the rule as it is, or {VERSION}"],
    ),
    "a pattern has come": (
        edited(note=(Annotated[str, Field(pattern="^x")] | None, None)),
        [f"OrderPlaced.note had no pattern, and has pattern ^x: {LOG}: leave the rule as it is, or {VERSION}"],
    ),
    "a format is another": (
        edited(at=str),
        [
            f"OrderPlaced.at was text (date-time), and is text: {CONSUMERS}: "
            f"leave it as it was, and add a field for the new form, or {VERSION}"
        ],
    ),
    "a field within a list is another": (
        edited(lines=list[Narrow]),
        [
            f"OrderPlaced.lines[].price was text, and is an integer: {BOTH}: "
            f"leave it as it was, and add a field for the new form, or {VERSION}"
        ],
    ),
    "a list must have more": (
        edited(tags=(Annotated[list[str], Field(min_length=1)], Field(default_factory=list))),
        [f"OrderPlaced.tags had no minItems, and has minItems 1: {LOG}: leave the rule as it is, or {VERSION}"],
    ),
    "a part refuses what it does not know": (
        edited(address=Strict),
        [f"OrderPlaced.address refuses fields that it does not know: {LOG}: leave it as it was, or {VERSION}"],
    ),
    "a union has one more": (
        edited(note=(str | int | None, None)),
        [
            f"OrderPlaced.note was text or null, and is text or an integer or null: {CONSUMERS}: "
            f"leave it as it was, and add a field for the new form, or {VERSION}"
        ],
    ),
}


@pytest.mark.parametrize(("new", "lines"), INCOMPATIBLE.values(), ids=INCOMPATIBLE)
def test_a_breaking_change_is_named_with_its_field_the_readers_that_it_breaks_and_the_remedy(new, lines):
    assert breaks(new) == lines


class LongLine(BaseModel):
    sku: str
    price: Decimal
    tax: Decimal = Decimal()


class Nested(BaseModel):
    """The same as a dataclass of the same fields."""

    sku: Annotated[str, Field(title="SKU", description="as in the catalogue", examples=["A-1"])]
    price: Decimal


BACKWARDS = list(edited().model_fields.items())[::-1]

COMPATIBLE = {
    "nothing": (Placed, []),
    "a field has come with a default": (edited(customer=(str, "")), ["OrderPlaced.customer is new: breaks nothing"]),
    "a field has come that may be null": (
        edited(customer=(str | None, None)),
        ["OrderPlaced.customer is new: breaks nothing"],
    ),
    "a field has come within a list": (edited(lines=list[LongLine]), []),
    "a default is another": (edited(note=(str | None, "none")), []),
    "a required field got a default": (edited(total=(int, 0)), []),
    "a part is described, and has another name": (edited(lines=list[Nested]), []),
    "fields stand in another order": (
        create_model(
            "Placed", **{name: (each.annotation, each) for name, each in reversed(edited().model_fields.items())}
        ),
        [],
    ),
    "values of an enum stand in another order": (edited(kind=Literal["shop", "web"]), []),
    "an enum is a class now": (edited(kind=StrEnum("Kind", {"WEB": "web", "SHOP": "shop"})), []),
    "a union is written in another order": (edited(note=(Annotated[None, 1] | str, None)), []),
    "a bound is said another way": (edited(total=Annotated[int, Field(strict=True)]), []),
    "a deprecated field is marked": (edited(total=Annotated[int, Field(deprecated=True)]), []),
}


@pytest.mark.parametrize(("new", "lines"), COMPATIBLE.values(), ids=COMPATIBLE)
def test_a_change_that_breaks_no_reader_passes(new, lines):
    assert [each.text for each in changes(new)] == lines


def only(name: str, kind: Any, default: Any = ...) -> Any:
    return create_model("Made", **{name: (kind, default)})


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (Annotated[int, Field(gt=0)], Annotated[int, Field(ge=1)], True),
        (Annotated[float, Field(gt=0)], Annotated[float, Field(ge=1)], False),
        (Annotated[int, Field(multiple_of=6)], Annotated[int, Field(multiple_of=3)], False),
        (dict[str, int], dict[str, str], False),
        (dict[str, Any], dict[str, int], False),
        (tuple[int, str], tuple[int, int], False),
        (tuple[int, str], tuple[int, str], True),
        (list[int], tuple[int, int], False),
        (Any, int, False),
        (bool, int, False),
        (UUID, str, False),
        (bytes, str, False),
    ],
)
def test_two_types_are_equal_if_each_accepts_every_value_of_the_other(old, new, same):
    assert (not breaks(only("a", new), only("a", old))) is same


def test_a_change_that_is_compatible_one_way_breaks_only_the_other_reader():
    """6, 12 … are multiples of 3, so the log can be read; but a consumer may get 3."""
    old, new = (only("a", Annotated[int, Field(multiple_of=each)]) for each in (6, 3))
    assert [(each.breaks_log, each.breaks_consumers) for each in changes(new, old)] == [(False, True)]
    assert [(each.breaks_log, each.breaks_consumers) for each in changes(old, new)] == [(True, False)]


def test_the_comparison_of_recursive_references_ends():
    assert changes(edited(parent=(Placed | None, None))) == []


def test_no_field_may_be_added_or_removed_where_unknown_fields_are_refused():
    two = create_model("Made", __config__=ConfigDict(extra="forbid"), a=(int, 0), b=(int, 0))
    one = create_model("Made", __config__=ConfigDict(extra="forbid"), a=(int, 0))
    assert "is new, and consumers refuse" in breaks(two, one)[0]
    assert [(each.breaks_log, each.breaks_consumers) for each in changes(one, two)] == [(True, True)]


def of(old: EventForm, **fields: Any) -> list[str]:
    return [each.text for each in compare_forms(old, replace(old, **fields), ())]


def test_a_version_may_change_neither_its_key_nor_its_aggregate_type():
    old = form(Placed)
    assert of(old, key="total") == [f"OrderPlaced has the key total instead of id: {BOTH}: leave the key, or {VERSION}"]
    assert of(old, aggregate_type="Cart") == [
        f"OrderPlaced has the aggregate type Cart instead of Order: {BOTH}: leave the aggregate type, or {VERSION}"
    ]


def test_a_new_version_may_change_everything_if_every_earlier_version_has_an_upcast():
    old, new = form(Placed), form(edited(total=str), version=3, aggregate_type="Cart", key="total")
    assert [each.text for each in compare_forms(old, new, [1, 2])] == [
        "OrderPlaced has version 3 instead of 1, with an upcast: breaks nothing"
    ]
    assert [each.text for each in compare_forms(old, new, [1])] == [
        "OrderPlaced has version 3 instead of 1, and no upcast from version 2: breaks reading the log: "
        "write @outbox.upcast(Placed, from_version=2)"
    ]
    assert compare_forms(new, old, [1, 2])[0].is_break


def test_a_field_that_was_added_with_a_default_may_never_lose_it():
    """Events from before it came are in the log, though every later one has it."""
    assert breaks(edited(customer=str), edited(customer=(str, ""))) == [
        f"OrderPlaced.customer is required now: {LOG}: give it a default, or {VERSION}"
    ]


@settings(max_examples=60)
@given(changed(), st.data())
def test_the_new_class_reads_payloads_of_the_old_one_unless_the_change_breaks_the_log(two, data):
    old, new = two
    found = compare_forms(form(old.annotation), form(new.annotation), ())
    event(f"passes: {not any(each.breaks_log for each in found)}")
    if not any(each.breaks_log for each in found):
        written = orjson.loads(JsonCodec().encode(data.draw(old.values)))
        fields = old.annotation.model_fields
        later = [
            name for name in written if name in fields and not fields[name].is_required() and data.draw(st.booleans())
        ]
        earlier = {name: value for name, value in written.items() if name not in later}
        TypeAdapter(new.annotation).validate_json(orjson.dumps(earlier))


@settings(max_examples=60)
@given(changed(), st.data())
def test_payloads_of_the_new_class_are_valid_for_consumers_unless_the_change_breaks_them(two, data):
    old, new = two
    before, after = form(old.annotation), form(new.annotation)
    found = compare_forms(before, after, ())
    event(f"passes: {not any(each.breaks_consumers for each in found)}")
    if not any(each.breaks_consumers for each in found):
        written = orjson.loads(JsonCodec().encode(data.draw(new.values)))
        jsonschema.Draft202012Validator(before.schema).validate(written)
