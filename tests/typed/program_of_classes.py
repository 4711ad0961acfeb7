"""A program whose events are classes, as type checkers see it. It is never run; see `program`."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, assert_type
from uuid import UUID

import attrs
import msgspec
from fast_depends import Depends
from psycopg import Connection
from pydantic import BaseModel

from partbox import DeliveredEvent, Event, Outbox, event
from partbox.testing import Drained, Kit, delivered


@event(aggregate_type="Order", key="order_id", version=2)
class OrderPlaced(BaseModel):
    order_id: int
    total: Decimal


@event(name="order.paid", key=("shop", "order_id"), tenant="shop")
@dataclass
class OrderPaid:
    shop: str
    order_id: int


@event
class OrderMoved(msgspec.Struct):
    order_id: int


@event(key=lambda lost: lost.order_id)
@attrs.frozen
class OrderLost:
    order_id: int


outbox = Outbox()


@outbox.on(OrderPlaced)
async def confirm_placed(order: OrderPlaced) -> None:
    assert_type(order.total, Decimal)
    assert order.totl  # type: ignore[attr-defined]


@outbox.on(OrderPaid, subscription="mails")
def confirm_paid(event: DeliveredEvent[OrderPaid]) -> None:
    assert_type(event.payload, OrderPaid)
    assert_type(event.payload.shop, str)
    assert_type(event.version, int)
    assert event.payload.total  # type: ignore[attr-defined]


@outbox.on_batch(OrderMoved)
def move(moved: list[OrderMoved], events: list[DeliveredEvent]) -> None:
    assert_type(moved[0].order_id, int)


@outbox.on(OrderLost, transactional=True)
def lose(lost: OrderLost, event: DeliveredEvent[OrderLost], conn: Connection[Any]) -> None:
    assert_type(event.payload.order_id, int)


@dataclass
class State:
    region: str


@outbox.lifespan
async def lifespan() -> AsyncIterator[State]:
    yield State("north")


def of_region(state: State) -> str:
    return state.region


@outbox.on(OrderPaid)
def bill(paid: OrderPaid, state: State, region: Annotated[str, Depends(of_region)]) -> None:
    assert_type(state.region, str)
    assert_type(region, str)


def live_otherwise() -> None:
    @Outbox().lifespan
    def lifespan() -> Iterator[None]:
        yield

    @Outbox().lifespan  # type: ignore[type-var]
    def wrong() -> int:
        return 1


@outbox.upcast(OrderPlaced, from_version=1)
def with_total(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "total": "0"}


def publish_typed(conn: Connection[Any]) -> None:
    placed = OrderPlaced(order_id=7, total=Decimal(1))
    assert_type(outbox.publish(conn, placed, tenant_id="t1"), UUID | None)
    outbox.publish(conn, OrderPaid("s", 7), deliver_after="5m")
    outbox.publish(conn, OrderMoved(7))
    outbox.publish(conn, OrderLost(7))
    outbox.publish(conn, Event(placed, idempotency_key="k"))
    assert_type(outbox.publish_many(conn, [placed, Event("Other", 1), OrderPaid("s", 7)]), list[UUID | None])
    outbox.publish(conn, 7)  # type: ignore[call-overload]
    outbox.publish(conn, {"order_id": 7})  # type: ignore[call-overload]
    outbox.publish(conn, placed, agregate_id=7)  # type: ignore[call-overload]
    outbox.on(int)  # type: ignore[arg-type]
    outbox.dead.replay_all(OrderPlaced)
    outbox.subscriptions.create("placed", types=[OrderPlaced, "Other"])


def tested_typed(conn: Connection[Any]) -> None:
    with Kit(outbox, "postgresql:///test") as kit:
        kit.publish(OrderPlaced(order_id=7, total=Decimal(1)))
        assert_type(kit.published(OrderPlaced).one().payload, OrderPlaced)
        assert_type(kit.published(OrderPaid).payloads, list[OrderPaid])
        kit.fail_next(OrderPlaced, OSError("no"))
        assert_type(kit.drain().of(OrderPlaced), Drained)
        confirm_paid(delivered(OrderPaid("s", 7), attempt=2))
        confirm_paid(delivered(OrderLost(7)))  # type: ignore[arg-type]
