"""What is known of an event on its way to a broker, and the names that a binding gives it."""

from datetime import datetime

import pytest
from delivered import delivered
from hypothesis import example, given
from hypothesis import strategies as st

from partbox.events import DeliveredEvent
from partbox.events.delivered import Row
from partbox.sinks import Message

ID, HEADERS, OCCURRED_AT = 2, 10, 12


def with_(at: int, value: object) -> Message:
    event = delivered(1)
    row: Row = (*event.record[:at], value, *event.record[at + 1 :])
    return Message(DeliveredEvent(row, event._claim), "orders")


@given(st.integers(-(2**63), 2**63 - 1))
@example(0)
@example(-1)
@example(2**63 - 1)  # PostgreSQL's infinity
@example(-(2**63))
def test_the_time_of_a_message_is_that_of_its_event(microseconds):
    message = with_(OCCURRED_AT, microseconds.to_bytes(8, signed=True))
    assert datetime.fromisoformat(message.time) == message.event.occurred_at


@given(st.binary(min_size=16, max_size=16))
def test_the_id_of_a_message_is_that_of_its_event(data):
    message = with_(ID, data)
    assert message.id == str(message.event.event_id)


def test_headers_of_partbox_override_headers_of_the_publisher_with_the_same_name():
    message = with_(HEADERS, b'{"ce_type": "forged", "x-shop": "berlin", "partbox-idempotency-key": "once"}')
    bound = message.bound("ce_", "content-type")
    assert (bound["ce_type"], bound["x-shop"], bound["ce_idempotencykey"]) == ("Placed", "berlin", "once")
    assert "partbox-idempotency-key" not in bound
    assert message.headers == {"ce_type": "forged", "x-shop": "berlin"}


def test_unreadable_headers_fail_before_anything_is_sent():
    with pytest.raises(AttributeError):
        with_(HEADERS, b"[1]")
