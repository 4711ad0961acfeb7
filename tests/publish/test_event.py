"""What can be an event, and what is refused at once."""

import enum
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox import Event
from partbox.errors import PublishError

NOW = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)


class Kind(enum.Enum):
    PLACED = "OrderPlaced"
    SHIPPED = 2


class Name(enum.StrEnum):
    ORDER = "Order"


def test_an_event_has_the_defaults_of_its_envelope() -> None:
    event = Event("OrderPlaced", {"id": 42})
    assert (event.event_type, event.payload, event.aggregate_type) == ("OrderPlaced", {"id": 42}, "__GLOBAL__")
    assert event.aggregate_id is event.tenant_id is event.occurred_at is event.content_type is None
    assert (event.headers, event.event_id.version, event.is_delayed) == ({}, 7, False)


def test_ids_are_unique_and_rise() -> None:
    ids = [Event("T", None).event_id for _ in range(1_000)]
    assert ids == sorted(set(ids))


def test_a_supplied_id_is_kept() -> None:
    given_id = UUID(int=7)
    assert Event("T", None, event_id=given_id).event_id == given_id


def test_an_enum_stands_for_its_text_or_its_name() -> None:
    assert Event(Kind.PLACED, None, aggregate_type=Name.ORDER).event_type == "OrderPlaced"
    assert Event(Kind.SHIPPED, None).event_type == "SHIPPED"
    assert type(Event("T", None, aggregate_type=Name.ORDER).aggregate_type) is str


def test_an_id_may_come_as_text() -> None:
    assert Event("T", None, event_id=str(UUID(int=7))).event_id == UUID(int=7)


def test_names_and_ids_may_be_as_long_as_their_limits() -> None:
    event = Event("x" * 255, None, aggregate_type="ä" * 255, aggregate_id="ä" * 4_096, tenant_id="x" * 8_192)
    assert (len(event.aggregate_type), len(event.aggregate_id or ""), len(event.tenant_id or "")) == (255, 4_096, 8_192)


def test_an_event_with_an_aggregate_type_may_omit_the_aggregate_id_but_not_give_none() -> None:
    event = Event("T", 1, aggregate_type="Order")
    changed = replace(event, payload=2)
    assert (event.aggregate_id, changed.aggregate_id, changed.payload) == (None, None, 2)
    assert replace(event, aggregate_id="7").aggregate_id == "7"
    assert replace(Event("T", 1, aggregate_type="Order", aggregate_id=7), payload=2).aggregate_id == "7"
    with pytest.raises(PublishError, match="flush first"):
        replace(Event("T", 1, aggregate_type="Order", aggregate_id="7"), aggregate_id=None)
    assert Event("T", 1, aggregate_id=None).aggregate_id is None


def test_the_part_of_a_payload_that_cannot_be_copied_is_named() -> None:
    with pytest.raises(PublishError, match=r"^payload.items\[1\]\['a b'\] of 'OrderPlaced' cannot be copied"):
        Event("OrderPlaced", {"items": [1, {"a b": (n for n in "ab")}]})


def test_an_event_cannot_be_changed() -> None:
    event = Event("T", {"a": [1]}, headers={"h": "1"})
    with pytest.raises(FrozenInstanceError):
        event.event_type = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        event.headers["h"] = "2"  # type: ignore[index]


def test_later_changes_to_the_inputs_do_not_change_an_event() -> None:
    model = SimpleNamespace(tags=["a"])
    payload: dict[str, Any] = {"list": [1, {"deep": [2]}], "model": model}
    headers = {"h": "1"}
    raw = bytearray(b"raw")
    event, other = Event("T", payload, headers=headers), Event("T", raw)
    payload["list"][1]["deep"].append(3)
    payload["more"] = 1
    model.tags.append("b")
    headers["h"] = "2"
    raw[0] = 0
    assert event.payload["list"] == [1, {"deep": [2]}]
    assert event.payload["model"].tags == ["a"]
    assert ("more" in event.payload, event.headers, other.payload) == (False, {"h": "1"}, b"raw")


def test_a_delay_is_a_time_or_a_span() -> None:
    now = datetime.now(UTC)
    assert Event("T", None, available_at=now).is_delayed
    with pytest.raises(PublishError, match="is past, and the event occurs now"):
        Event("T", None, available_at=now - timedelta(minutes=2))
    assert Event("T", None, deliver_after=1.5).deliver_after == timedelta(seconds=1.5)
    assert Event("T", None, deliver_after=timedelta(minutes=1)).is_delayed
    assert Event("T", None, deliver_after="5m").deliver_after == timedelta(minutes=5)
    assert Event("T", None, available_at=NOW, occurred_at=NOW).available_at == NOW


def test_times_around_the_end_of_daylight_saving_time_are_compared_as_they_pass() -> None:
    """The clocks of Berlin show 02:00 to 03:00 twice on that day: the second 02:10 comes after the first 02:30."""
    berlin = ZoneInfo("Europe/Berlin")
    first, second = (datetime(2026, 10, 25, 2, minutes, tzinfo=berlin, fold=minutes == 10) for minutes in (30, 10))
    assert Event("T", None, occurred_at=first, available_at=second).available_at == second
    with pytest.raises(PublishError, match="is before occurred_at"):
        Event("T", None, occurred_at=second, available_at=first)


def test_an_int_or_a_uuid_as_aggregate_id_is_kept_as_its_text() -> None:
    class Number(enum.IntEnum):
        SEVEN = 7

    assert Event("T", None, aggregate_id=-42).aggregate_id == "-42"
    assert Event("T", None, aggregate_id=Number.SEVEN).aggregate_id == "7"
    assert Event("T", None, aggregate_id=UUID(int=7)).aggregate_id == "00000000-0000-0000-0000-000000000007"


def test_events_can_be_members_of_a_set_whatever_their_payload_is() -> None:
    one = Event("T", {"a": [1]}, headers={"h": "1"}, event_id=UUID(int=1))
    same = Event("T", {"a": [1]}, headers={"h": "1"}, event_id=UUID(int=1))
    other = Event("T", {"a": [2]}, event_id=UUID(int=1))
    assert (one == same, hash(one) == hash(same), one == other) == (True, True, False)
    assert len({one, same, other}) == 2


def test_long_ids_and_empty_ones_are_fine() -> None:
    assert Event("T", None, aggregate_id="x" * 5_000, tenant_id="").aggregate_id == "x" * 5_000
    assert Event("T", None, aggregate_id="").aggregate_id == ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"event_type": ""}, "event_type is empty"),
        ({"event_type": None}, "event_type None is a NoneType, not a str: convert it"),
        ({"event_type": "a\0b"}, "event_type .* holds a NUL character"),
        ({"aggregate_type": ""}, "aggregate_type is empty"),
        ({"aggregate_id": True}, "aggregate_id True is a bool, not a str, int or UUID: convert it"),
        ({"aggregate_id": 4.2}, "aggregate_id 4.2 is a float, not a str, int or UUID: convert it"),
        ({"aggregate_id": "\ud800"}, r"aggregate_id '\\ud800' holds a lone surrogate"),
        ({"tenant_id": "\0"}, "tenant_id .* holds a NUL character"),
        ({"content_type": ""}, "content_type is empty"),
        ({"event_id": "0"}, "event_id '0' is a str and no UUID: give a uuid.UUID or its text"),
        ({"headers": {"n": "a\0"}}, "^header 'n' holds a NUL character"),
        ({"headers": {"n": 1}}, "^header 'n' is a int, not a str"),
        ({"headers": {"Partbox-x": "1"}}, "header 'Partbox-x' begins with 'partbox-'"),
        ({"headers": {"n": "é" * 32_768}}, "the headers have 65537 bytes together, above 65536"),
        ({"occurred_at": datetime(2024, 1, 1)}, "occurred_at 2024-01-01T00:00:00 has no time zone"),
        ({"available_at": datetime(2024, 1, 1)}, "available_at 2024-01-01T00:00:00 has no time zone"),
        ({"available_at": "2024-01-01"}, "available_at must be a datetime, not str '2024-01-01'"),
        ({"available_at": NOW, "deliver_after": 1}, "available_at and deliver_after are both given"),
        ({"available_at": NOW, "occurred_at": NOW + timedelta(1)}, "is before occurred_at"),
        ({"available_at": NOW}, r"available_at 2024-05-06 .* is past, and the event occurs now: leave it out"),
        ({"deliver_after": 0}, "deliver_after must be above 0 and at most 36500 days, not 0"),
        ({"deliver_after": -1}, "deliver_after must be above 0"),
        ({"deliver_after": 1e-9}, "deliver_after must be above 0"),
        ({"deliver_after": float("nan")}, "deliver_after must be above 0"),
        ({"deliver_after": float("inf")}, "deliver_after must be above 0"),
        ({"deliver_after": timedelta(0)}, "deliver_after must be above 0"),
        ({"deliver_after": timedelta(days=40_000)}, "at most 36500 days"),
        ({"deliver_after": True}, 'deliver_after must be a timedelta, seconds or a text such as "5m", not bool True'),
        ({"deliver_after": NOW}, "deliver_after must be .*, not datetime .*: give a time as available_at$"),
        ({"deliver_after": "soon"}, "deliver_after 'soon' is no length of time: give seconds, or a text such as"),
        ({"deliver_after": "0s"}, "deliver_after must be above 0 and at most 36500 days, not '0s'"),
        ({"event_id": 7}, "event_id 7 is a int and no UUID"),
        ({"event_type": "x" * 256}, r"event_type 'x{99}x?'?….* has 256 characters, above 255: shorten it"),
        ({"aggregate_type": "ä" * 256}, "aggregate_type .*… has 256 characters, above 255: shorten it"),
        ({"content_type": "x" * 256}, "content_type .*… has 256 characters, above 255: shorten it"),
        ({"aggregate_id": "x" * 8_193}, "aggregate_id .*… has 8193 bytes, above 8192: hash what is longer"),
        ({"aggregate_id": "ä" * 4_097}, "aggregate_id .*… has 8194 bytes, above 8192: hash what is longer"),
        ({"tenant_id": "x" * 8_193}, "tenant_id .*… has 8193 bytes, above 8192: hash what is longer"),
        (
            {"aggregate_type": "Order", "aggregate_id": None},
            "aggregate_id is None, and aggregate_type is 'Order': flush first, so that the object has its id; for an "
            "event without order leave aggregate_id out",
        ),
        ({"agregate_id": "7"}, "an event has no field 'agregate_id': did you mean 'aggregate_id'?"),
        ({"zzz": "7"}, "an event has no field 'zzz': there are aggregate_id, tenant_id, .*, content_type"),
        ({"idempotency_key": ""}, "idempotency_key must have 1 to 255 characters, not 0: leave it out, or give one"),
        ({"idempotency_key": "ä" * 256}, "idempotency_key must have 1 to 255 characters, not 256: hash what is longer"),
        ({"idempotency_key": 42}, "idempotency_key 42 is a int, not a str: convert it"),
        ({"idempotency_key": "a\0"}, "idempotency_key .* holds a NUL character"),
        (
            {"payload": (n for n in "ab")},
            "^payload of 'T' cannot be copied .TypeError.: give JSON",
        ),
    ],
    ids=lambda value: ascii(value).split(" at 0x")[0][:60],
)
def test_an_event_with_an_invalid_field_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(PublishError, match=message):
        Event(**{"event_type": "T", "payload": None} | fields)


def test_an_aggregate_id_of_more_digits_than_python_writes_is_refused() -> None:
    with pytest.raises(PublishError, match="aggregate_id is a number with very many digits: give it as text"):
        Event("T", None, aggregate_id=10**5_000)


def test_an_error_does_not_quote_the_value_of_a_header() -> None:
    with pytest.raises(PublishError) as caught:
        Event("T", None, headers={"authorization": "secret\0"})
    assert "secret" not in str(caught.value)


def test_the_repr_of_an_event_shows_neither_payload_nor_headers() -> None:
    assert "secret" not in repr(Event("T", {"password": "secret"}, headers={"token": "secret"}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.datetimes() | st.uuids(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
)


@given(JSON)
def test_the_copy_of_a_payload_equals_it(payload: Any) -> None:
    copied = Event("T", payload).payload
    assert copied == payload
    assert copied is not payload or not isinstance(payload, dict | list)
