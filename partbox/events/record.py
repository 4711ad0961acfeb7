"""The columns of a record as the log is read: a row is a plain tuple, and these are its places.

A named slice costs nothing beside a numeric one, where a named tuple would cost three times as much for each record.
UUIDs are 16 bytes, times 8 bytes (big-endian microseconds since 2000-01-01 UTC), JSON is its text in bytes.
"""

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
MAY_BE_CANCELLED: Final = 14
"""Only the record of a parked row has it: true if it is delayed, and cancelled or perhaps about to be."""

LOG_POSITION: Final = slice(PARTITION, ID + 1)
"""(partition, id): where the record is in the log."""

IDENTITY: Final = slice(ID, EVENT_ID + 1)
"""(id, event id): distinguishes a record from one that got the same id after a crash of the server."""

ROUTE: Final = slice(EVENT_TYPE, AGGREGATE_TYPE + 1)
"""(event type, aggregate type): by which its handler is found."""

AGGREGATE: Final = slice(AGGREGATE_TYPE, AGGREGATE_ID + 1)
"""(aggregate type, aggregate id): the key of its order."""


_payload, _available_at, _event_type = itemgetter(PAYLOAD), itemgetter(AVAILABLE_AT), itemgetter(EVENT_TYPE)
_NAMES = (EVENT_TYPE, AGGREGATE_TYPE, AGGREGATE_ID, TENANT_ID, CONTENT_TYPE)
USUAL_NAME_BYTES = 600  # bytes of the names of an event, as most have them

_unpack_int64 = struct.Struct(">q").unpack


def microseconds(time: bytes) -> int:
    """A time of a row as a number: microseconds since 2000-01-01 UTC."""
    return _unpack_int64(time)[0]  # type: ignore[no-any-return]


def list_incomplete(rows: Sequence[Row]) -> list[Row]:
    """The rows of which something was left out because it is large: the payload, or a name."""
    # A look without a line of Python for each, and the answer of most pages.
    if None not in map(_payload, rows) and None not in map(_event_type, rows):
        return []
    return [row for row in rows if lacks_names(row) or (row[PAYLOAD] is None and row[PAYLOAD_BYTES] is None)]


def lacks_names(row: Row) -> bool:
    """True if a name of the row was left out because it is large: without it, nothing can be done with the record."""
    return row[EVENT_TYPE] is None


class PartitionRows(NamedTuple):
    """The rows of one partition in a page, with their ids."""

    rows: list[Row]
    ids: list[int]


class PageStats:
    """Facts about the rows of a page, gathered as the rows are made: later each look at a row goes to memory.

    `by_partition`: by partition, in the order in which they came. `types`: of their events. `has_incomplete`: something
    was left out of one. `has_delayed`: one has a time before which it does not run.
    """

    __slots__ = ("by_partition", "has_delayed", "has_incomplete", "types")

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self.has_incomplete = self.has_delayed = False
        self.types: set[str] = set()
        self.by_partition: defaultdict[int, PartitionRows] = defaultdict(lambda: PartitionRows([], []))
        self.add(rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Look at these too, if there are any."""
        if not rows:
            return
        types = [*map(_event_type, rows)]
        self.types.update(types[:1] if types.count(types[0]) == len(types) else types)  # a hash for each costs more
        self.has_incomplete = self.has_incomplete or None in map(_payload, rows) or None in self.types
        self.has_delayed = self.has_delayed or any(map(_available_at, rows))
        by_partition = self.by_partition
        for row in rows:
            partition_rows, ids = by_partition[row[PARTITION]]
            partition_rows.append(row)
            ids.append(row[ID])


def row_bytes(row: Row) -> int:
    """Bytes of the payload and headers of a row, and of names beyond what every event is reckoned with, in memory."""
    data = sum(len(row[at]) for at in (PAYLOAD, PAYLOAD_BYTES, HEADERS) if row[at] is not None)
    return data + max(0, sum(getsizeof(row[at]) for at in _NAMES if row[at] is not None) - USUAL_NAME_BYTES)
