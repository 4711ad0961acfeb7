"""The strategies produce what is valid, as the page on testing shows, and reach the corners."""

from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from run_size import examples

from partbox import Event, partition_of
from partbox.codecs import Codecs
from partbox.errors import PublishError
from partbox.events.checks import MAX_HEADERS
from partbox.publish.fields import encode_event
from partbox.testing import strategies
from partbox.testing.strategies import aggregate_ids, events, headers, partitions, payloads

SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def size(given: dict[str, str]) -> int:
    return sum(len(name.encode()) + len(value.encode()) for name, value in given.items())


@settings(SHARED, max_examples=examples(30))
@given(ids=st.lists(aggregate_ids(), min_size=1, max_size=30))
def test_python_and_the_database_agree_on_the_partition_of_an_aggregate(conn: psycopg.Connection[Any], ids: list[str]):
    rows = conn.execute("select partbox.partition_of(id) from unnest(%s::text[]) as given (id)", [ids])
    assert [partition for (partition,) in rows] == [partition_of(id) for id in ids]


@given(event=events(delayed=True))
def test_every_event_can_be_stored(event: Event) -> None:
    fields = encode_event(event, Codecs(), 1_048_576)
    assert 0 <= fields[0] <= 255


@given(value=payloads())
def test_every_payload_comes_back_equal(value: Any) -> None:
    codecs = Codecs()
    encoded = codecs.encode(value)
    data = encoded.data if encoded.text is None else encoded.text.encode()
    assert codecs.decode(data, encoded.content_type, raw=encoded.raw) == value


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.parametrize(
    ("strategy", "corner"),
    [
        (aggregate_ids(), lambda id: id == ""),
        (aggregate_ids(), lambda id: any(ord(character) > 0xFFFF for character in id)),
        (aggregate_ids(), lambda id: "\n" in id),
        (headers(full=True), lambda given: size(given) == MAX_HEADERS),
        (headers(), lambda given: given == {}),
        (payloads(), lambda value: value is None),
        (payloads(), lambda value: isinstance(value, bytes)),
        (partitions(), lambda partition: partition == 255),
        (events(), lambda event: event.aggregate_id is None),
        (events(), lambda event: event.idempotency_key is not None),
        (events(delayed=True), lambda event: event.available_at is not None),
        (events(delayed=True), lambda event: event.deliver_after is not None),
    ],
    ids=lambda value: "" if callable(value) else None,
)
def test_the_strategies_reach_corner_cases(strategy: Any, corner: Any) -> None:
    find(strategy, corner, settings=settings(max_examples=2_000, deadline=None, database=None, phases=[Phase.generate]))


@given(event=events(event_type=st.just("OrderPlaced"), payload=st.just(None)))
def test_a_field_may_have_a_strategy_of_its_own(event: Event) -> None:
    assert (event.event_type, event.payload, event.is_delayed) == ("OrderPlaced", None, False)


def test_a_misspelled_field_is_refused() -> None:
    with pytest.raises(TypeError, match="agregate_id"):
        events(agregate_id=aggregate_ids())


def test_one_more_byte_of_headers_is_refused() -> None:
    full = {"a": "x" * (MAX_HEADERS - 1)}
    Event("T", None, headers=full)
    with pytest.raises(PublishError, match="65537 bytes"):
        Event("T", None, headers=full | {"b": ""})


def test_the_public_strategies_are_documented() -> None:
    for name in strategies.__all__:
        assert getattr(strategies, name).__doc__, name
