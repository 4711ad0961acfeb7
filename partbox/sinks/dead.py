"""The sink of dead events: from its URL to a function that sends one."""

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
from partbox.text.secrets import masked

DeadEventSender = Callable[[DeliveredEvent, str], None]
"""Takes a dead event and its error; raises if it was not taken, and is then called again."""

TIMEOUT = 30.0  # seconds
_HEADER = re.compile(r"[!-~]+( [!-~]+)*")
SCHEMES = "file:PATH (JSON lines), stdout:, http://… or https://…"


def build_dead_sender(url: str) -> DeadEventSender:
    """The function for a URL; SettingsError in one line if the URL is invalid."""
    parts = urlsplit(url)
    check_ports(url)
    plain = not (parts.netloc or parts.query or parts.fragment)
    match parts.scheme:
        case "stdout" if plain and not parts.path:
            return lambda event, error: append_to_stdout(_line(event, error))
        case "file" if plain and parts.path:
            path = Path(unquote(parts.path))
            return lambda event, error: append(path, _line(event, error))
        case "http" | "https" if parts.hostname and not parts.fragment:
            return lambda event, error: _post(url, event, error)
    raise SettingsError(f"{masked(url)!r} is not a target for dead events: use {SCHEMES}")


def _line(event: DeliveredEvent, error: str) -> bytes:
    return document(event, error) + b"\n"


def _post(url: str, event: DeliveredEvent, error: str) -> None:
    """A POST of JSON; any answer but 2xx is an error."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key(event)}
    post(url, document(event, error), headers, TIMEOUT)


def idempotency_key(event: DeliveredEvent) -> str:
    """The event's own key where it has one that a header can hold (visible ASCII, single spaces), else its id."""
    key = event.idempotency_key
    return key if key is not None and _HEADER.fullmatch(key) else str(event.event_id)


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
            **in_json("payload", event.raw, is_json=event.content_type is None),
            "occurred_at": event.occurred_at,
            "created_at": event.created_at,
            "subscription": event.subscription,
            "attempts": event.attempt,
            "error": error,
        }
    )
