"""Span attributes of events: never a payload, an aggregate id or a tenant."""

from collections.abc import Sequence
from typing import Any

from partbox.events import DeliveredEvent, Event

SYSTEM = {"messaging.system": "partbox"}
TYPES = 20  # named at most


def of_publish(events: Sequence[Event]) -> dict[str, Any]:
    """The attributes of publishing a batch."""
    return {**SYSTEM, "messaging.operation.name": "publish", **_of_all(events)}


def of_poll(records: int, subscription: str | None) -> dict[str, Any]:
    """The attributes of a poll that returned `records` records."""
    known = {} if subscription is None else {"partbox.subscription": subscription}
    return {**SYSTEM, "messaging.operation.name": "poll", **known, "batch.size": records}


def of_handle(events: Sequence[DeliveredEvent], handler: str) -> dict[str, Any]:
    """The attributes of a handler's call; those of a single event only if there is one."""
    first, *more = events
    found = {**SYSTEM, "messaging.operation.name": "handle", **_of_all(events)}
    found |= {"partbox.subscription": first.subscription, "partbox.handler": handler}
    if not more:
        found |= {"partbox.partition": first.partition, "partbox.attempt": first.attempt, "partbox.epoch": first.epoch}
    return found


def _of_all(events: Sequence[Event] | Sequence[DeliveredEvent]) -> dict[str, Any]:
    return {
        "partbox.event_type": _one_or_all({each.event_type for each in events}),
        "partbox.aggregate_type": _one_or_all({each.aggregate_type for each in events}),
        **(_of_one(events[0]) if len(events) == 1 else {"messaging.batch.message_count": len(events)}),
    }


def _of_one(event: Event | DeliveredEvent) -> dict[str, Any]:
    return {"messaging.message.id": str(event.event_id)}


def _one_or_all(names: set[str]) -> str | list[str]:
    return sorted(names)[:TYPES] if len(names) > 1 else next(iter(names))
