"""Whatever an application gives: an event that can be stored, or a PublishError of one line that names the field."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_size import examples

from partbox import Event
from partbox.codecs import Codecs
from partbox.errors import PublishError
from partbox.publish.fields import encode_event
from partbox.testing.strategies import aggregate_ids, json_values

LONGEST_LINE = 500
TEXTS = ("event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type", "idempotency_key")
UNTEXT = st.one_of(st.just("\0"), st.characters(categories=["Cs"]))

anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters()), st.binary(),
        st.complex_numbers(),
        st.decimals(), st.fractions(), st.uuids(), st.dates(), st.times(), st.datetimes(), st.timedeltas(),
        st.just(object()), st.just(int), st.just(b"\xff" * 10_000), st.just("x" * 10_000),
        st.just(datetime.max), st.just(timedelta.max), st.just(datetime.fromisoformat("0001-01-01T00:00:00+14:00")),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(st.characters()), inner, max_size=3),
        st.dictionaries(st.one_of(st.integers(), st.none(), st.text()), inner, max_size=3), st.tuples(inner, inner),
    ),
    max_leaves=5,
)  # fmt: skip
FIELDS = (
    "aggregate_type", "aggregate_id", "tenant_id", "headers", "event_id", "occurred_at", "available_at",
    "deliver_after", "content_type", "idempotency_key",
)  # fmt: skip


def refusal(**fields: Any) -> str:
    """What is said of an event with these fields."""
    with pytest.raises(PublishError) as refused:
        Event(**{"event_type": "T", "payload": None, **fields})
    return one_line(refused.value)


def one_line(error: PublishError) -> str:
    said = str(error)
    assert said.isprintable(), "one line that acts on no terminal"
    assert 0 < len(said) <= LONGEST_LINE
    return said


@given(field=st.sampled_from(TEXTS), before=aggregate_ids(30), wrong=UNTEXT, after=aggregate_ids(30))
def test_nul_and_lone_surrogates_are_refused_in_every_text_by_the_name_of_its_field(
    field: str, before: str, wrong: str, after: str
) -> None:
    said = refusal(**{field: before + wrong + after})
    assert said.startswith(f"{field} ")
    assert ("NUL" if wrong == "\0" else "lone surrogate") in said or "NUL" in said


@given(before=aggregate_ids(30), wrong=UNTEXT, in_name=st.booleans())
def test_nul_and_lone_surrogates_are_refused_in_headers(before: str, wrong: str, in_name: bool) -> None:
    bad = before + wrong
    said = refusal(headers={bad: "v"} if in_name else {"trace": bad})
    assert said.startswith("a header's name " if in_name else "header 'trace' ")


@given(before=aggregate_ids(30), wrong=UNTEXT, key=st.booleans())
def test_nul_and_lone_surrogates_are_refused_in_payloads(before: str, wrong: str, key: bool) -> None:
    bad = before + wrong
    with pytest.raises(PublishError) as refused:
        encode_event(Event("T", [{bad: 1} if key else {"k": bad}]), Codecs(), 1_048_576)
    assert one_line(refused.value).startswith("payload[0] of 'T' " if key else "payload[0].k of 'T' ")


@pytest.mark.parametrize("size", [1_000, 10_000, 1_000_000])
@pytest.mark.parametrize("field", TEXTS)
def test_the_error_is_short_however_long_the_refused_value(field: str, size: int) -> None:
    assert refusal(**{field: "x" * size + "\0"}).startswith(f"{field} ")


@pytest.mark.parametrize("wrong", ["abc", [1], 7, [("a", "b", "c")]], ids=["text", "list", "number", "triples"])
def test_headers_that_are_no_mapping_are_refused(wrong: Any) -> None:
    assert refusal(headers=wrong).startswith("headers ")


def test_the_value_of_a_header_is_not_quoted() -> None:
    assert "hunter2" not in refusal(headers={"authorization": "hunter2\0"})


@pytest.mark.parametrize("field", ["deliver_after", "event_id", "available_at", "aggregate_id", "headers"])
def test_a_number_too_long_for_python_to_print_is_refused_too(field: str) -> None:
    assert refusal(**{field: 10**5_000}).startswith(f"{field} ")


@settings(max_examples=examples(300), deadline=None)
@given(payload=anything, fields=st.dictionaries(st.sampled_from(FIELDS), anything, max_size=3))
def test_an_arbitrary_event_is_encoded_or_refused_in_one_line(payload: Any, fields: dict[str, Any]) -> None:
    try:
        event = Event("T", payload, **fields)
        partition, event_id, *_ = encode_event(event, Codecs(), 1_048_576)
    except PublishError as error:
        one_line(error)
        return
    assert 0 <= partition <= 255
    assert isinstance(event_id, UUID)


@settings(max_examples=examples(100), deadline=None)
@given(event_type=anything)
def test_an_arbitrary_event_type_becomes_a_text_or_is_refused(event_type: Any) -> None:
    try:
        taken = Event(event_type, None).event_type
    except PublishError as error:
        taken = one_line(error)
        begin = taken.startswith("event_type ")
    else:
        begin = isinstance(taken, str)
    assert begin, taken


@given(value=json_values(), odd=st.sampled_from([float("nan"), float("inf"), 2**64, object(), Fraction(1, 3), 1j, {1}]))
def test_a_value_that_json_cannot_hold_is_refused_however_deeply_it_is_nested(value: Any, odd: Any) -> None:
    for payload in ([value, odd], {"a": value, "b": [odd]}):
        with pytest.raises(PublishError) as refused:
            encode_event(Event("T", payload), Codecs(), 1_048_576)
        one_line(refused.value)


@given(
    value=st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False), st.uuids(), st.dates(), st.datetimes(), st.times()
    )
)
def test_values_that_are_written_as_json_texts_are_accepted(value: Decimal | UUID | date | time) -> None:
    assert encode_event(Event("T", {"value": value}), Codecs(), 1_048_576)[6] is not None
