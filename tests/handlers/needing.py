"""An outbox whose handlers need more than their event."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import partbox
from partbox import DeliveredEvent, Outbox
from partbox.events.delivered import ProcessState
from partbox.handlers import Handler
from partbox.testing import delivered


@dataclass
class State:
    name: str


@partbox.event(aggregate_type="Order", key="order_id")
@dataclass
class Placed:
    order_id: int


def lifespan() -> Iterator[State]:
    yield State("shop")


def handler_of(outbox: Outbox, event_type: str = "Placed") -> Handler:
    return outbox.handlers.build_routes("default", outbox.settings)[event_type, "Order"]


def event_in(state: Any) -> DeliveredEvent:
    """An event in a process of this state."""
    return delivered(Placed(7)).with_process(ProcessState(state))
