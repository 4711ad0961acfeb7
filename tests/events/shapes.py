"""The classes of these tests: an order of each of the four kinds, the same on the wire."""

import dataclasses
from decimal import Decimal
from typing import Any

import attrs
import msgspec
from pydantic import BaseModel

import partbox


@partbox.event(aggregate_type="Order", key="order_id", tenant="shop", version=2)
class ModelOrder(BaseModel):
    order_id: int
    total: Decimal
    shop: str | None = None


@partbox.event(aggregate_type="Order", key="order_id", tenant="shop", version=2)
@dataclasses.dataclass(frozen=True)
class DataOrder:
    order_id: int
    total: Decimal
    shop: str | None = None


@partbox.event(aggregate_type="Order", key="order_id", tenant="shop", version=2)
class StructOrder(msgspec.Struct, frozen=True):
    order_id: int
    total: Decimal
    shop: str | None = None


@partbox.event(aggregate_type="Order", key="order_id", tenant="shop", version=2)
@attrs.frozen
class AttrsOrder:
    order_id: int
    total: Decimal
    shop: str | None = None


ORDERS: tuple[Any, ...] = (ModelOrder, DataOrder, StructOrder, AttrsOrder)
