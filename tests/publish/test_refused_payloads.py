"""A payload that cannot be written: the error names the event and the place in it."""

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from partbox import Event
from partbox.codecs import Codecs
from partbox.errors import PublishError
from partbox.events.copying import find_failing_part
from partbox.publish.fields import encode_event, encode_events


@dataclass
class Priced:
    price: Any


class Basket(BaseModel):
    lines: list[Any]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (
            {"items": [{}, {}, {}, {"price": {1, 2}}]},
            r"^payload.items\[3\].price of 'OrderPlaced' .*: set has no form",
        ),
        (
            {"items": [Priced(Decimal("NaN"))]},
            r"^payload.items\[0\].price of 'OrderPlaced' .*: NaN and Infinity",
        ),
        (Basket(lines=[1, {"at": object()}]), r"^payload.lines\[1\].at of 'OrderPlaced' cannot be written as"),
        ({"a b": (1, 2**64)}, r"^payload\['a b'\]\[1\] of 'OrderPlaced' .*: an integer is beyond 64 bits"),
        ({"a": {"b": b"bytes"}}, r"^payload.a.b of 'OrderPlaced' cannot be written as application/json"),
        ({"a": {1: 2}}, r"^payload.a of 'OrderPlaced' cannot be written as application/json"),
        ({1, 2}, r"^the payload of 'OrderPlaced' cannot be written as application/json: set has no form in JSON"),
        ("a\0b", r"^the payload of 'OrderPlaced' cannot be written as application/json: it holds a NUL character"),
    ],
)
def test_the_error_for_a_payload_that_cannot_be_written_names_the_event_and_the_place(payload: Any, said: str) -> None:
    with pytest.raises(PublishError, match=said):
        encode_event(Event("OrderPlaced", payload), Codecs(), 1_000)
    with pytest.raises(PublishError, match=said.replace("^", "^event 1 of the list: ", 1)):
        encode_events([Event("Other", 1), Event("OrderPlaced", payload)], Codecs(), 1_000)


def test_the_path_within_a_payload_that_contains_itself_is_bounded() -> None:
    payload: dict[str, Any] = {}
    payload["again"] = payload
    assert find_failing_part(payload, json.dumps) == "payload" + ".again" * 50
