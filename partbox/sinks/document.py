"""A dead event as one JSON document."""

import base64
from typing import Any

import orjson

from partbox.events import DeliveredEvent


def document(event: DeliveredEvent, error: str) -> bytes:
    """Everything that is known of a dead event, in one line; a payload that is not JSON as `payload_base64`."""
    return orjson.dumps(
        {
            "record_id": event.id,
            "event_id": event.event_id,
            "event_type": event.event_type,
            "aggregate_type": event.aggregate_type,
            "aggregate_id": event.aggregate_id,
            "tenant_id": event.tenant_id,
            "idempotency_key": event.idempotency_key,
            "headers": event.headers,
            "content_type": event.content_type,
            **_payload(event),
            "occurred_at": event.occurred_at,
            "created_at": event.created_at,
            "subscription": event.subscription,
            "attempts": event.attempt,
            "error": error,
        }
    )


def _payload(event: DeliveredEvent) -> dict[str, Any]:
    if event.content_type is None:
        # Stored verbatim: a line break can only stand between two tokens of it.
        return {"payload": orjson.Fragment(event.raw.replace(b"\n", b" ").replace(b"\r", b" "))}
    return {"payload_base64": base64.b64encode(event.raw).decode()}
