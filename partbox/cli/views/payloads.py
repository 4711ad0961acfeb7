"""Payloads that were asked for: as a line for people, and within JSON."""

from base64 import b64encode
from collections.abc import Iterator

import orjson

Payload = str | bytes | None


def payload_lines(value: Payload) -> Iterator[tuple[str, str]]:
    """The line of a payload among the details of a record."""
    if isinstance(value, bytes):
        yield "payload", f"{len(value):,} bytes: --json prints them as base64"
    else:
        yield "payload", "gone from the log, or none" if value is None else str(value)


def with_payload(plain: dict[str, object], wanted: bool) -> dict[str, object]:
    """The details: a payload that is JSON as such, verbatim; one of bytes in base64; none that is not wanted."""
    value = plain.pop("payload")
    if isinstance(value, bytes):
        plain["payload_base64"] = b64encode(value).decode()
    elif wanted:
        plain["payload"] = None if value is None else orjson.Fragment(str(value))
    return plain
