"""A record as a line of JSON, and back.

What is null is left out. `payload` and `headers` are the JSON that was published as a text, letter for letter; bytes
are base64. Times are in UTC, with microseconds.
"""

from base64 import b64decode, b64encode
from typing import Any, Final
from uuid import UUID

import orjson

from partbox.db.operator.archive import ArchiveRow

TEXTS: Final = (
    "event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload", "content_type", "headers", "available_at",
    "occurred_at", "created_at",
)  # fmt: skip
NEEDED: Final = ("id", "partition", "event_id", "event_type", "aggregate_type", "occurred_at", "created_at")
ALL: Final = frozenset({"id", "partition", "event_id", "payload_bytes", *TEXTS})
LARGEST: Final = 2**63 - 1
PARTITIONS: Final = 256


def line_of(row: ArchiveRow) -> bytes:
    """The line of a record, its end included."""
    fields: dict[str, Any] = {name: value for name, value in row._asdict().items() if value is not None}
    del fields["expired"]
    if row.payload_bytes is not None:
        fields["payload_bytes"] = b64encode(row.payload_bytes).decode()
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def row_of(line: bytes) -> ArchiveRow:
    """The record of a line; ValueError, which says what is wrong with it, if it is none."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    if strange := sorted(fields.keys() - ALL):
        raise ValueError(f"{strange[0]!r} is no column of a record")
    for name in NEEDED:
        if fields.get(name) is None:
            raise ValueError(f"it has no {name}")
    return ArchiveRow(
        id=_number(fields, "id", LARGEST),
        partition=_number(fields, "partition", PARTITIONS - 1),
        event_id=_uuid(fields),
        payload_bytes=_bytes(fields),
        expired=True,
        **{name: _text(fields, name) for name in TEXTS},
    )


def _number(fields: dict[str, Any], name: str, most: int) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"its {name} is no number from 0 to {most}")
    return value


def _text(fields: dict[str, Any], name: str) -> Any:
    value = fields.get(name)
    if value is not None and (not isinstance(value, str) or "\0" in value):
        raise ValueError(f"its {name} is no text that PostgreSQL holds")
    return value


def _uuid(fields: dict[str, Any]) -> str:
    try:
        return str(UUID(_text(fields, "event_id")))
    except ValueError:
        raise ValueError("its event_id is no UUID") from None


def _bytes(fields: dict[str, Any]) -> bytes | None:
    text = _text(fields, "payload_bytes")
    try:
        return None if text is None else b64decode(text, validate=True)
    except ValueError:
        raise ValueError("its payload_bytes are not base64") from None
