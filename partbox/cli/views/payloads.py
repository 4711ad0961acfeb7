"""Payloads of records as text and within JSON."""

from base64 import b64encode
from collections.abc import Iterator

import orjson

Payload = str | bytes | None


def list_payload_lines(value: Payload) -> Iterator[tuple[str, str]]:
    if isinstance(value, bytes):
        yield "payload", f"{len(value):,} bytes: --json prints them as base64"
    else:
        yield "payload", "gone from the log, or none" if value is None else str(value)


def convert_payload(plain: dict[str, object], wanted: bool) -> dict[str, object]:
    """Prepare a record's payload for output as JSON, or remove the payload unless it is `wanted`."""
    # A JSON payload is embedded verbatim. Bytes are always included, as base64 under `payload_base64`.
    value = plain.pop("payload")
    if isinstance(value, bytes):
        plain["payload_base64"] = b64encode(value).decode()
    elif wanted:
        plain["payload"] = None if value is None else orjson.Fragment(str(value))
    return plain
