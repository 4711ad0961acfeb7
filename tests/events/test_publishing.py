"""Instances of event classes are published as they are."""

import dataclasses
import json
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from pydantic import BaseModel
from shapes import ORDERS, DataOrder, ModelOrder, StructOrder

import partbox
from partbox import Event, Outbox, PublishError
from partbox.codecs import Codecs
from partbox.publish.fields import UNTIMED_COLUMNS, encode_event


def stored(conn: Connection[Any]) -> list[tuple[Any, ...]]:
    return conn.execute(
        "select event_type, aggregate_type, aggregate_id, tenant_id, payload, headers from partbox.record order by id"
    ).fetchall()


def refused(*given: Any, **fields: Any) -> str:
    """The error of an event, of which no part of its payload may be seen."""
    with pytest.raises(PublishError) as caught:
        Outbox("postgresql://nowhere").publish(None, *given, **fields)
    assert "secret" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("cls", ORDERS)
def test_an_instance_of_an_event_class_can_be_published_directly(
    cls: Any, conn: Connection[Any], outbox: Outbox
) -> None:
    with conn.transaction():
        outbox.publish(conn, cls(order_id=7, total=Decimal("1.20"), shop="s"))
        outbox.publish(conn, cls(order_id=7, total=Decimal("1.20")), aggregate_id=8, tenant_id="t", headers={"a": "b"})
    payload, version = {"order_id": 7, "total": "1.20", "shop": "s"}, {"partbox-version": "2"}
    assert stored(conn) == [
        (cls.__name__, "Order", "7", "s", payload, version),
        (cls.__name__, "Order", "8", "t", {**payload, "shop": None}, {"a": "b", **version}),
    ]


def test_instances_and_events_are_mixed_in_a_list(conn: Connection[Any], outbox: Outbox) -> None:
    with conn.transaction():
        ids = outbox.publish_many(
            conn,
            [
                DataOrder(1, Decimal(1)),
                Event("Plain", {}, aggregate_id=2),
                Event(StructOrder(3, Decimal(3)), idempotency_key="k"),
            ],
        )
    assert None not in ids
    found = [(kind, key, (headers or {}).get("partbox-version")) for kind, _, key, _, _, headers in stored(conn)]
    assert found == [("DataOrder", "1", "2"), ("Plain", "2", None), ("StructOrder", "3", "2")]


async def test_instances_are_published_on_asynchronous_connections(dsn: str, conn: Connection[Any]) -> None:
    outbox = Outbox(dsn)
    async with await psycopg.AsyncConnection.connect(dsn) as their, their.transaction():
        await outbox.publish_async(their, ModelOrder(order_id=1, total=Decimal(1)))
        await outbox.publish_many_async(their, [DataOrder(2, Decimal(2))])
    assert [row[:3] for row in stored(conn)] == [("ModelOrder", "Order", "1"), ("DataOrder", "Order", "2")]


def test_hooks_see_instances_as_payloads_and_may_add_instances(conn: Connection[Any], outbox: Outbox) -> None:
    told: list[Any] = []

    @outbox.before_publish
    def double(events: list[Event]) -> list[Any]:
        return [*events, DataOrder(events[0].payload.order_id + 1, Decimal(0))]

    @outbox.before_publish
    def add(events: list[Event]) -> None:
        events.append(DataOrder(9, Decimal(0)))  # type: ignore[arg-type]

    @outbox.after_publish
    def tell(events: list[Event]) -> None:
        told.extend(event.payload for event in events)

    with conn.transaction():
        outbox.publish(conn, DataOrder(1, Decimal(0)))
    assert told == [DataOrder(each, Decimal(0)) for each in (1, 2, 9)]
    assert [row[2] for row in stored(conn)] == ["1", "2", "9"]


def test_hooks_see_a_copy_of_the_payload_that_its_owner_cannot_change(conn: Connection[Any], outbox: Outbox) -> None:
    told: list[Any] = []
    order = ModelOrder(order_id=1, total=Decimal(0))

    @outbox.after_publish
    def tell(events: list[Event]) -> None:
        told.extend(event.payload for event in events)

    with conn.transaction():
        outbox.publish(conn, order)
    order.order_id = 2
    assert told[0].order_id == 1
    event = Event(order)
    order.order_id = 3
    assert event.payload.order_id == 2


def test_a_payload_published_under_the_name_of_its_class_has_the_version_of_its_class() -> None:
    """As it was written before the class was an event."""
    order = ModelOrder(order_id=1, total=Decimal(0))
    assert Event("ModelOrder", order).version == 2
    assert Event("ModelOrder", order, version=1).version == 1
    assert Event("Other", order).version is None
    assert Event("ModelOrder", {"order_id": 1}).version is None
    assert dataclasses.replace(Event(order), payload={}).version == 2


def test_an_event_without_a_class_and_a_version_gets_no_additional_headers() -> None:
    assert dict(zip(UNTIMED_COLUMNS, encode_event(Event("T", 1), Codecs(), 100), strict=True))["headers"] is None
    columns = dict(
        zip(UNTIMED_COLUMNS, encode_event(Event("T", 1, version=3, idempotency_key="k"), Codecs(), 100), strict=True)
    )
    assert json.loads(columns["headers"]) == {"partbox-idempotency-key": "k", "partbox-version": "3"}


class Loose(BaseModel):
    name: str = "secret"


class Gift(DataOrder):
    """It inherits from an event."""


@partbox.event(key="name")
@dataclasses.dataclass
class Keyed:
    name: str | None
    note: str = "secret"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((Loose(),), "Loose is a pydantic model, but not declared as an event: decorate the class with @partbox"),
        ((Gift(1, Decimal(1)),), "Gift is a dataclass, but not declared as an event (only its base class Data"),
        ((Keyed(None),), "name of Keyed is None, and it is the key: flush first"),
        ((DataOrder,), "DataOrder is a class: publish an instance of it"),
        ((DataOrder, {"order_id": 1}), "DataOrder was given a separate payload: publish an instance"),
        ((Keyed("a"), {}), "Keyed was given a separate payload"),
        (("T",), "'T' has no payload"),
        (({"secret": 1},), "publish was given a payload without an event type: outbox.publish(conn, event)"),
    ],
)
def test_an_object_that_is_no_event_is_refused_before_anything_is_sent(given: tuple[Any, ...], said: str) -> None:
    assert refused(*given).startswith(said)


def test_the_first_wrong_object_of_a_list_is_named_with_its_index(conn: Connection[Any], outbox: Outbox) -> None:
    with conn.transaction():
        with pytest.raises(PublishError, match="event 1 of the list: name of Keyed is None"):
            outbox.publish_many(conn, [Keyed("a"), Keyed(None)])
        with pytest.raises(PublishError, match="event 1 of the list: an Event is needed, not a str"):
            outbox.publish_many(conn, [Keyed("a"), "T"])  # type: ignore[list-item]
    assert stored(conn) == []


@pytest.mark.parametrize("version", [0, -1, True, "2", 2**31])
def test_a_version_is_a_whole_number_from_1(version: Any) -> None:
    with pytest.raises(PublishError, match="version must be a whole number from 1"):
        Event("T", 1, version=version)
