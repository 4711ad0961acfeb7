"""The columns of a record as the log is read: a row is a plain tuple, and these are its places.

A named slice costs nothing beside a numeric one, where a named tuple would cost three times as much for each record.
UUIDs are 16 bytes, times 8 bytes (big-endian microseconds since 2000-01-01 UTC), JSON is its text in bytes.
"""

import struct
from typing import Any, Final

Row = tuple[Any, ...]

PARTITION: Final = 0
ID: Final = 1
EVENT_ID: Final = 2
EVENT_TYPE: Final = 3
AGGREGATE_TYPE: Final = 4
AGGREGATE_ID: Final = 5
TENANT_ID: Final = 6
PAYLOAD: Final = 7
PAYLOAD_BYTES: Final = 8
CONTENT_TYPE: Final = 9
HEADERS: Final = 10
AVAILABLE_AT: Final = 11
OCCURRED_AT: Final = 12
CREATED_AT: Final = 13

PLACE: Final = slice(PARTITION, ID + 1)
"""(partition, id): where the record is in the log."""

IDENTITY: Final = slice(ID, EVENT_ID + 1)
"""(id, event id): distinguishes a record from one that got the same id after a crash of the server."""

ROUTE: Final = slice(EVENT_TYPE, AGGREGATE_TYPE + 1)
"""(event type, aggregate type): by which its handler is found."""

AGGREGATE: Final = slice(AGGREGATE_TYPE, AGGREGATE_ID + 1)
"""(aggregate type, aggregate id): the key of its order."""


_signed = struct.Struct(">q").unpack


def microseconds(time: bytes) -> int:
    """A time of a row as a number: microseconds since 2000-01-01 UTC."""
    return _signed(time)[0]  # type: ignore[no-any-return]
