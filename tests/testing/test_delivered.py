"""A handler's event without a database is the one that a worker would have handed over."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from partbox import Event, Outbox, PartboxError, PayloadError, PublishError
from partbox.testing import Kit, delivered
from partbox.testing.strategies import events

ASKED = (
    "partition", "event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "content_type", "payload",
    "raw", "headers", "idempotency_key", "is_delayed", "subscription",
)  # fmt: skip


class Order(BaseModel):
    total: int


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attempt": 0}, "attempt = 0 is invalid: give a whole number from 1"),
        ({"attempt": "x"}, "attempt = 'x' is invalid"),
        ({"id": -1}, "id = -1 is invalid"),
        ({"epoch": 1.5}, "epoch = 1.5 is invalid"),
        ({"created_at": datetime(2020, 1, 1)}, "created_at 2020-01-01T00:00:00 has no time zone"),
        ({"created_at": "2020-01-01"}, "created_at must be a datetime, not str '2020-01-01'"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(fields, said):
    with pytest.raises(PartboxError, match=said):
        delivered("T", 1, **fields)


def test_a_delivered_event_with_a_past_creation_time_was_available_then():
    then = datetime(2020, 1, 1, tzinfo=UTC)
    event = delivered("T", 1, created_at=then, available_at=then + timedelta(hours=1))
    assert (event.created_at, event.occurred_at, event.available_at) == (then, then, then + timedelta(hours=1))


def test_a_delivered_event_has_the_fields_that_it_was_given():
    event = delivered(
        "OrderPlaced", {"total": 42}, aggregate_type="Order", aggregate_id=7, tenant_id="acme", attempt=3, epoch=5,
        id=9, headers={"trace": "x"}, idempotency_key="key", subscription="audit",
    )  # fmt: skip
    assert (event.attempt, event.epoch, event.id, event.subscription) == (3, 5, 9, "audit")
    assert event.payload_as(Order) == Order(total=42)
    assert (event.aggregate_type, event.aggregate_id, event.tenant_id) == ("Order", "7", "acme")
    assert (event.headers, event.idempotency_key) == ({"trace": "x"}, "key")
    with pytest.raises(PayloadError):
        delivered("OrderPlaced", {"total": "much"}).payload_as(Order)


def test_the_times_of_a_delivered_event_are_those_of_a_publish_now_or_at_the_given_time():
    then = datetime(2020, 2, 29, 12, 0, 0, 17, tzinfo=UTC)
    event = delivered(Event("T", 1, deliver_after=timedelta(hours=1)), created_at=then)
    assert (event.created_at, event.occurred_at, event.available_at) == (then, then, then + timedelta(hours=1))
    before = datetime.now(UTC)
    assert before <= delivered("T", 1).created_at <= datetime.now(UTC)
    assert delivered("T", 1, occurred_at=then).occurred_at == then
    assert not delivered("T", 1).is_delayed


def test_the_payload_of_a_delivered_event_goes_through_the_codecs():
    class Reversed:
        def encode(self, value: str, /) -> bytes:
            return value[::-1].encode()

        def decode(self, data: bytes, /) -> str:
            return data.decode()[::-1]

    outbox = Outbox(codecs={"text/reversed": Reversed()})
    event = delivered("T", "abc", content_type="text/reversed", outbox=outbox)
    assert (event.payload, event.raw) == ("abc", b"cba")
    assert delivered("T", (1, UUID(int=7))).payload == [1, str(UUID(int=7))]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("T", object()), "cannot be written"), (("", 1), "event_type is empty"), (("T",), "has no payload")],
)
def test_arguments_that_cannot_be_published_are_refused_by_delivered(arguments, said):
    with pytest.raises(PublishError, match=said):
        delivered(*arguments)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(event=events(idempotency_key=st.none()))
def test_a_delivered_event_equals_the_one_that_a_worker_passes_to_a_handler(kit: Kit, event: Event):
    kit.forget()
    got = []
    kit.outbox.handlers._registered.clear()
    kit.outbox.on("*")(got.append)
    kit.publish(event)
    kit.drain().assert_done()
    built = delivered(event)
    assert [getattr(got[0], name) for name in ASKED] == [getattr(built, name) for name in ASKED]
    if event.occurred_at is not None:
        assert got[0].occurred_at == built.occurred_at
