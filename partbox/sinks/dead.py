"""Sinks of dead events: functions that send one dead event to the target of a URL."""

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import orjson

from partbox.errors import SettingsError
from partbox.events import DeliveredEvent
from partbox.sinks.appending import append, append_to_stdout
from partbox.sinks.http_post import post
from partbox.sinks.message import in_json
from partbox.text.dsn import check_ports
from partbox.text.secrets import mask_secrets

# Takes a dead event and its error. If the function raises, it is called again later.
DeadEventSender = Callable[[DeliveredEvent, str], None]

TIMEOUT = 30.0  # seconds
_HEADER = re.compile(r"[!-~]+( [!-~]+)*")
SCHEMES = "file:PATH (JSON lines), stdout:, http://… or https://…"


def build_dead_sender(url: str) -> DeadEventSender:
    """Return the function that sends dead events to a URL. Raise SettingsError if the URL is invalid."""
    # The error is in one line.
    parts = urlsplit(url)
    check_ports(url)
    plain = not (parts.netloc or parts.query or parts.fragment)
    match parts.scheme:
        case "stdout" if plain and not parts.path:
            return lambda event, error: append_to_stdout(_format_line(event, error))
        case "file" if plain and parts.path:
            path = Path(unquote(parts.path))
            return lambda event, error: append(path, _format_line(event, error))
        case "http" | "https" if parts.hostname and not parts.fragment:
            return lambda event, error: _post_event(url, event, error)
    raise SettingsError(f"{mask_secrets(url)!r} is not a target for dead events: use {SCHEMES}")


def _format_line(event: DeliveredEvent, error: str) -> bytes:
    return document(event, error) + b"\n"


def _post_event(url: str, event: DeliveredEvent, error: str) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key(event)}
    post(url, document(event, error), headers, TIMEOUT)


def idempotency_key(event: DeliveredEvent) -> str:
    """Return the event's idempotency key if an HTTP header can hold it, else the event id."""
    # A header can hold visible ASCII and single spaces.
    key = event.idempotency_key
    return key if key is not None and _HEADER.fullmatch(key) else str(event.event_id)


def document(event: DeliveredEvent, error: str) -> bytes:
    """Return all data of a dead event (which is not tried again) and its error as one line of JSON.

    A payload that is not JSON is in `payload_base64`."""
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
            **in_json("payload", event.raw, is_json=event.content_type is None),
            "occurred_at": event.occurred_at,
            "created_at": event.created_at,
            "subscription": event.subscription,
            "attempts": event.attempt,
            "error": error,
        }
    )
