"""Payloads: what goes in comes out, and what cannot is refused before it is sent."""

import enum
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection
from pydantic import BaseModel, ConfigDict
from reading import count, delivered
from run_size import examples

from partbox import Event, Outbox
from partbox.codecs import Codecs
from partbox.errors import PayloadError, PublishError
from partbox.events import ClaimContext, DeliveredEvent

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
INT64 = st.integers(-(2**63), 2**64 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


class Size(enum.Enum):
    SMALL = "S"
    LARGE = "L"


@dataclass
class Line:
    sku: str
    price: Decimal


class Order(BaseModel):
    id: UUID
    placed_at: datetime
    day: date
    size: Size
    lines: list[Line]


class Reversed:
    """A codec of one's own."""

    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, data: bytes) -> str:
        return data.decode()[::-1]


ORDERS = st.builds(
    Order,
    id=st.uuids(),
    placed_at=st.datetimes(timezones=st.just(UTC)),
    day=st.dates(),
    size=st.sampled_from(Size),
    lines=st.lists(st.builds(Line, TEXT, st.decimals(allow_nan=False, allow_infinity=False))),
)


@given(JSON)
def test_json_comes_back_as_it_went(payload: Any) -> None:
    encoded = Codecs().encode(payload)
    assert encoded.text is not None
    assert (encoded.data, encoded.content_type) == (None, None)
    assert Codecs().decode(encoded.text.encode()) == payload


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(payloads=st.lists(JSON | st.binary(max_size=20), max_size=12))
def test_every_payload_survives_the_database(
    dsn: str, conn: Connection[Any], payloads: list[dict[str, object] | bytes]
) -> None:
    with conn.transaction(force_rollback=True):
        Outbox(dsn).publish_many(conn, [Event("T", payload) for payload in payloads])
        assert [event.payload for event in delivered(conn)] == payloads


@given(ORDERS)
def test_models_dataclasses_decimals_enums_times_and_uuids_come_back_as_the_model(order: Order) -> None:
    assert _delivered(order).payload_as(Order) == order


@given(ORDERS)
def test_dataclasses_decimals_enums_times_and_uuids_may_also_stand_inside_plain_json(order: Order) -> None:
    payload = {"id": order.id, "at": order.placed_at, "day": order.day, "size": order.size, "lines": order.lines}
    stored = _delivered(payload).payload
    assert UUID(stored["id"]) == order.id
    assert datetime.fromisoformat(stored["at"]) == order.placed_at
    assert (date.fromisoformat(stored["day"]), Size(stored["size"])) == (order.day, order.size)
    assert [Line(each["sku"], Decimal(each["price"])) for each in stored["lines"]] == order.lines


@dataclass
class Hidden:
    _id: int
    _inner: "list[Hidden]"
    name: str = "n"


@dataclass(slots=True)
class Slotted:
    _id: int


def test_no_field_of_a_dataclass_is_left_out_wherever_it_stands() -> None:
    payload = {"one": Hidden(1, [Hidden(2, [])]), "many": [Hidden(3, []), Slotted(4)]}
    inner = {"_id": 2, "_inner": [], "name": "n"}
    assert _delivered(payload).payload == {
        "one": {"_id": 1, "_inner": [inner], "name": "n"},
        "many": [{"_id": 3, "_inner": [], "name": "n"}, {"_id": 4}],
    }
    assert _delivered(Hidden(1, [Hidden(2, [])])).payload_as(Hidden) == Hidden(1, [Hidden(2, [])])


def test_attributes_of_an_instance_that_are_no_fields_do_not_belong_to_the_payload() -> None:
    hidden = Hidden(1, [])
    hidden.cached = 7  # type: ignore[attr-defined]
    assert _delivered(hidden).payload == {"_id": 1, "_inner": [], "name": "n"}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    id: UUID
    at: datetime
    price: Decimal
    size: Size
    lines: tuple[Line, ...]


STRICT = Strict(
    id=UUID(int=1), at=datetime(2024, 1, 1, tzinfo=UTC), price=Decimal("1.50"), size=Size.LARGE,
    lines=(Line("x", Decimal(2)),),
)  # fmt: skip


def test_a_strict_model_comes_back_also_from_an_own_codec() -> None:
    assert _delivered(STRICT).payload_as(Strict) == STRICT
    reversed_ = Codecs({"text/reversed": Reversed()})
    event = DeliveredEvent(_row(None, b"cba", "text/reversed"), ClaimContext(1, "default", reversed_))
    assert event.payload_as(str) == "abc"
    own = DeliveredEvent(_row(b'{"big": 1}'), ClaimContext(1, "default", Codecs({"application/json": Doubled()})))
    assert own.payload_as(dict[str, int]) == {"big": 2}


class Doubled:
    """Reads JSON in its own way."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        return {name: value * 2 for name, value in json.loads(data).items()}


def test_a_payload_deeper_than_pydantic_reads_json_still_fits_a_model() -> None:
    deep = b"[" * 300 + b"]" * 300
    assert DeliveredEvent(_row(deep), ClaimContext(1, "default", Codecs())).payload_as(list[Any]) == json.loads(deep)


@given(st.binary())
def test_raw_bytes_come_back_with_or_without_a_type_of_their_own(payload: bytes) -> None:
    assert _delivered(payload).payload == payload
    assert _delivered(payload).content_type == "application/octet-stream"
    assert _delivered(payload, content_type="image/png").payload == payload


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (float("nan"), "NaN and Infinity"),
        ({"deep": [None, float("inf")]}, "NaN and Infinity"),
        ({"deep": Line("null", Decimal("nan"))}, "NaN and Infinity"),
        (Line("x", float("-inf")), "NaN and Infinity"),  # type: ignore[arg-type]
        (2**64, "an integer is beyond 64 bits; give it as text"),
        ({"a": -(2**63) - 1}, "an integer is beyond 64 bits; give it as text"),
        ("a\0b", "a NUL character"),
        ({"\\\0": 1}, "a NUL character"),
        ("\ud800", "surrogates not allowed"),
        ({1: 2}, "Dict key must be str"),
        ({1, 2}, "set has no form in JSON"),
        ([b"x"], "bytes has no form in JSON"),
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_a_payload_that_json_or_postgresql_cannot_hold_is_refused(payload: Any, reason: str) -> None:
    with pytest.raises(PublishError, match=f"^the payload cannot be written as application/json: .*{reason}"):
        Codecs().encode(payload)


@pytest.mark.parametrize("payload", [None, {"a": None}, "null", Line("null", Decimal("1.50")), "\\u0000", [Size.SMALL]])
def test_a_payload_that_only_looks_unsuitable_is_accepted(payload: Any) -> None:
    assert Codecs().encode(payload).text is not None


def test_ready_json_text_is_taken_as_it_is_and_checked() -> None:
    assert Codecs().encode(b'{ "a" : 1.50 }', "application/json").text == '{ "a" : 1.50 }'
    for wrong in (
        b"{",
        b"NaN",
        b'"\xff"',
        b'"\\u0000"',
        b'"\\ud800"',
        b"[1e400]",
        b"[1e-400]",
        b"[18446744073709551616]",
    ):
        with pytest.raises(PublishError, match="cannot be written as application/json"):
            Codecs().encode(wrong, "application/json")


def test_a_text_with_the_content_type_of_json_is_json_text() -> None:
    assert Codecs().encode('{"a": 1.50}', "application/json") == ('{"a": 1.50}', None, None, False)
    assert Codecs().encode('{"a": 1}').text == '"{\\"a\\": 1}"'
    for wrong in ("{", "", "abc", "\ud800", '"\\u0000"', "18446744073709551616"):
        with pytest.raises(PublishError, match="cannot be written as application/json"):
            Codecs().encode(wrong, "application/json")


def test_an_own_codec_serves_its_content_type(dsn: str, conn: Connection[Any]) -> None:
    outbox = Outbox(dsn, codecs={"text/reversed": Reversed()})
    with conn.transaction():
        outbox.publish(conn, "T", "abc", content_type="text/reversed")
        outbox.publish(conn, "T", {"json": "stays"})
    assert conn.execute("select payload_bytes from partbox.record where content_type is not null").fetchone() == (
        b"cba",
    )
    assert [event.payload for event in delivered(conn, outbox.codecs)] == ["abc", {"json": "stays"}]


def test_a_payload_made_by_a_custom_codec_is_not_misread_by_a_process_without_it(
    dsn: str, conn: Connection[Any]
) -> None:
    with conn.transaction():
        Outbox(dsn, codecs={"text/reversed": Reversed()}).publish(conn, "T", "abc", content_type="text/reversed")
    (event,) = delivered(conn)
    with pytest.raises(PayloadError, match=r"content type 'text/reversed': pass one to Outbox\(codecs=…\)"):
        _ = event.payload


def test_an_own_codec_may_replace_json_but_must_write_json(dsn: str, conn: Connection[Any]) -> None:
    outbox = Outbox(dsn, codecs={"application/json": Json()})
    with conn.transaction():
        outbox.publish(conn, "T", {"big": 2**70})
        with pytest.raises(PublishError, match="wrote invalid JSON"):
            outbox.publish(conn, "T", float("nan"))
    assert [event.payload for event in delivered(conn, outbox.codecs)] == [{"big": 2**70}]


class Json:
    """The standard library's, for integers of any size."""

    def encode(self, value: Any) -> bytes:
        return json.dumps(value).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


@pytest.mark.parametrize(
    ("publish", "reason"),
    [
        (lambda codecs: codecs.encode({"a": 1}, "image/png"), "no codec for content type 'image/png'"),
        (lambda codecs: codecs.encode("a", "application/octet-stream"), "it must be bytes|TypeError"),
        (lambda codecs: codecs.encode(7, "text/reversed"), "cannot be written as text/reversed: TypeError$"),
        (lambda codecs: codecs.encode("x", "text/wrong"), "the codec of text/wrong must return bytes, not str"),
    ],
)
def test_a_wrong_content_type_is_refused(publish: Callable[[Codecs], Any], reason: str) -> None:
    class Wrong(Reversed):
        def encode(self, value: str) -> Any:
            return value

    with pytest.raises(PublishError, match=reason):
        publish(Codecs({"text/reversed": Reversed(), "text/wrong": Wrong()}))


def test_a_damaged_payload_is_a_payload_error_that_quotes_nothing() -> None:
    row = _row(payload=b'{"secret":')
    with pytest.raises(PayloadError, match="cannot be decoded as application/json") as caught:
        _ = DeliveredEvent(row, ClaimContext(1, "default", Codecs())).payload
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_payload_that_does_not_fit_the_model_is_a_payload_error_that_quotes_nothing() -> None:
    with pytest.raises(PayloadError, match=r"is no Order: id: .* \(and 4 more\)$") as caught:
        _delivered({"id": "secret"}).payload_as(Order)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_refused_payloads_leave_nothing_in_the_log(dsn: str, conn: Connection[Any]) -> None:
    outbox = Outbox(dsn)
    with conn.transaction():
        for payload in (float("nan"), 2**64, "\0", {1}, "\ud800"):
            with pytest.raises(PublishError):
                outbox.publish(conn, "T", payload)
        assert conn.execute("select pg_current_xact_id_if_assigned()").fetchone() == (None,)
    assert count(conn) == 0


def test_a_delivered_event_decodes_its_columns() -> None:
    row = _row(payload=b"[1]", headers=b'{"a":"b","partbox-idempotency-key":"k"}')
    event = DeliveredEvent(row, ClaimContext(9, "sub", Codecs()), 2)
    assert (event.partition, event.id, event.event_id, event.event_type) == (7, 11, UUID(int=5), "T")
    assert (event.aggregate_type, event.aggregate_id, event.tenant_id) == ("A", "a-1", "t")
    assert (event.headers, event.idempotency_key, event.payload) == ({"a": "b"}, "k", [1])
    assert (event.epoch, event.subscription, event.attempt, event.parked) == (9, "sub", 2, None)
    assert event.occurred_at == datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert event.created_at == datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert event.payload is event.payload
    assert "[1]" not in repr(event)


def test_a_delivered_event_says_until_when_it_had_to_wait() -> None:
    event = DeliveredEvent(_row(available=2_000_000), ClaimContext(1, "default", Codecs()))
    assert (event.is_delayed, event.available_at) == (True, datetime(2000, 1, 1, 0, 0, 2, tzinfo=UTC))
    event = DeliveredEvent(_row(), ClaimContext(1, "default", Codecs()))
    assert (event.is_delayed, event.available_at) == (False, None)


def test_times_beyond_the_calendar_of_python_become_its_ends() -> None:
    event = DeliveredEvent(_row(occurred=2**63 - 1, created=-(2**63)), ClaimContext(1, "default", Codecs()))
    assert event.occurred_at - datetime.max.replace(tzinfo=UTC) == timedelta(0)
    assert event.created_at - datetime.min.replace(tzinfo=UTC) == timedelta(0)


def _delivered(payload: Any, content_type: str | None = None) -> DeliveredEvent:
    text, data, content_type, raw = Codecs().encode(payload, content_type)
    headers = b'{"partbox-raw":"1"}' if raw else None
    row = _row(None if text is None else text.encode(), data, content_type, headers)
    return DeliveredEvent(row, ClaimContext(1, "default", Codecs()))


def _row(
    payload: bytes | None = b"null",
    data: bytes | None = None,
    content_type: str | None = None,
    headers: bytes | None = None,
    occurred: int = 1_000_000,
    created: int = -1,
    available: int | None = None,
) -> tuple[Any, ...]:
    times = (None if each is None else each.to_bytes(8, signed=True) for each in (available, occurred, created))
    return (7, 11, UUID(int=5).bytes, "T", "A", "a-1", "t", payload, data, content_type, headers, *times)
