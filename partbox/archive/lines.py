"""A record as a line of JSON, and back.

What is null is left out. `payload` and `headers` are the JSON that was published as a text, letter for letter; bytes
are base64. Times are in UTC, with microseconds.
"""

from base64 import b64decode, b64encode
from typing import Any, Final
from uuid import UUID

import orjson

from partbox.db.operator.archive import Row

TEXTS: Final = (
    "event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload", "content_type", "headers", "available_at",
    "occurred_at", "created_at",
)  # fmt: skip
NEEDED: Final = ("id", "event_id", "event_type", "aggregate_type", "occurred_at", "created_at")
ALL: Final = frozenset({"id", "partition", "event_id", "payload_bytes", *TEXTS})
LARGEST: Final = 2**63 - 1


def line_of(row: Row) -> bytes:
    """The line of a record, its end included."""
    fields: dict[str, Any] = {name: value for name, value in row._asdict().items() if value is not None}
    del fields["expired"]
    if row.payload_bytes is not None:
        fields["payload_bytes"] = b64encode(row.payload_bytes).decode()
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def row_of(line: bytes) -> Row:
    """The record of a line; ValueError, which says what is wrong with it, if it is none."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise ValueError("it is not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    _check(fields)
    data = fields.get("payload_bytes")
    return Row(
        id=fields["id"],
        partition=fields.get("partition", 0),
        event_id=fields["event_id"],
        payload_bytes=None if data is None else b64decode(data, validate=True),
        expired=True,
        **{name: fields.get(name) for name in TEXTS},
    )


def _check(fields: dict[str, Any]) -> None:
    if strange := sorted(fields.keys() - ALL):
        raise ValueError(f"{strange[0]!r} is no column of a record")
    if missing := [name for name in NEEDED if fields.get(name) is None]:
        raise ValueError(f"it has no {missing[0]}")
    for name in ("id", "partition"):
        if not isinstance(fields.get(name, 0), int) or not 0 <= fields.get(name, 0) <= LARGEST:
            raise ValueError(f"its {name} is no id" if name == "id" else "its partition is no number")
    for name in (*TEXTS, "event_id", "payload_bytes"):
        if not isinstance(fields.get(name, ""), str):
            raise ValueError(f"its {name} is no text")
        if "\0" in fields.get(name, ""):
            raise ValueError(f"its {name} holds a null byte")
    try:
        UUID(fields["event_id"])
    except ValueError:
        raise ValueError("its event_id is no UUID") from None
