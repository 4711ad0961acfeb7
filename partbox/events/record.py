"""The columns of a record as read from the log. A row is a plain tuple with these constants as indexes, because a named
tuple would cost three times as much. UUIDs are 16 bytes, times are 8 bytes (big-endian microseconds since 2000-01-01
UTC), and JSON is its text in bytes."""

import struct
from collections import defaultdict
from collections.abc import Sequence
from operator import itemgetter
from sys import getsizeof
from typing import Any, Final, NamedTuple

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
# Only present for a parked row: True if the event is delayed and has been cancelled or may be about to be.
MAY_BE_CANCELLED: Final = 14

# (partition, id): the position of the record in the log.
LOG_POSITION: Final = slice(PARTITION, ID + 1)

# (id, event id): distinguishes a record from a later record that got the same id after a crash of the server.
IDENTITY: Final = slice(ID, EVENT_ID + 1)

# (event type, aggregate type): selects the handler.
ROUTE: Final = slice(EVENT_TYPE, AGGREGATE_TYPE + 1)

# (aggregate type, aggregate id): the key of the record's order.
AGGREGATE: Final = slice(AGGREGATE_TYPE, AGGREGATE_ID + 1)


_payload, _available_at, _event_type = itemgetter(PAYLOAD), itemgetter(AVAILABLE_AT), itemgetter(EVENT_TYPE)
_names = itemgetter(EVENT_TYPE, AGGREGATE_TYPE, AGGREGATE_ID, TENANT_ID, CONTENT_TYPE)
# Bytes in memory of the names of most events, which are not counted.
USUAL_NAME_BYTES = 600

_unpack_int64 = struct.Struct(">q").unpack


def parse_microseconds(time: bytes) -> int:
    """Convert a time as stored in a row of the log into microseconds since 2000-01-01 UTC."""
    return _unpack_int64(time)[0]  # type: ignore[no-any-return]


def list_incomplete(rows: Sequence[Row]) -> list[Row]:
    """Return the log rows that were read without their payload or names, because these are large."""
    # The parts are large and are fetched separately.
    # This check runs no Python code per row, and settles most pages.
    if None not in map(_payload, rows) and None not in map(_event_type, rows):
        return []
    return [row for row in rows if lacks_names(row) or (row[PAYLOAD] is None and row[PAYLOAD_BYTES] is None)]


def lacks_names(row: Row) -> bool:
    """Return True if a log row was read without its names, such as the event type."""
    # Such a row cannot be used.
    return row[EVENT_TYPE] is None


class PartitionRows(NamedTuple):
    """The log rows of one partition and their record ids, as found by one read of the log."""

    rows: list[Row]
    ids: list[int]


class PageStats:
    """A summary of the log rows that one read of the log returned, grouped by partition."""

    # The rows of each partition are in order. `types` has the event types. `has_incomplete` is True if a row has parts
    # left out, `has_delayed` if a row has a time before which it does not run.

    __slots__ = ("by_partition", "has_delayed", "has_incomplete", "types")

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.has_incomplete = self.has_delayed = False
        self.types: set[str] = set()
        self.by_partition: defaultdict[int, PartitionRows] = defaultdict(lambda: PartitionRows([], []))
        self.add(rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Add more log rows, if there are any, to the summary."""
        # The facts are gathered while the rows are created, because each later access to a row has to go to memory.
        if not rows:
            return
        types = [*map(_event_type, rows)]
        # A hash for each row would cost more than the comparison.
        self.types.update(types[:1] if types.count(types[0]) == len(types) else types)
        self.has_incomplete = self.has_incomplete or None in map(_payload, rows) or None in self.types
        self.has_delayed = self.has_delayed or any(map(_available_at, rows))
        by_partition = self.by_partition
        for row in rows:
            partition_rows, ids = by_partition[row[PARTITION]]
            partition_rows.append(row)
            ids.append(row[ID])


def count_row_bytes(row: Row) -> int:
    """Return the bytes of memory that the payload, the headers and unusually long names of a log row take."""
    # Names count only beyond their usual size.
    # Missing parts count as empty ones, and a missing name as a short one.
    data = len(row[PAYLOAD] or b"") + len(row[PAYLOAD_BYTES] or b"") + len(row[HEADERS] or b"")
    return data + max(0, sum(map(getsizeof, _names(row))) - USUAL_NAME_BYTES)
