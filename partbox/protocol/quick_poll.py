"""The quick poll: one scan of a range of ids for all partitions that are caught up.

These partitions have read everything that the shared page S sees. A record of theirs is therefore unread if and only if
S does not see it. The id of such a record lies above the floor of S, or above the bound of a transaction that S lists
and that has ended. A partition that takes no part, because it is behind, draining or just claimed, keeps its page."""

from collections.abc import Collection

from partbox.protocol import cursor
from partbox.protocol.horizon import Page


def compute_id_range(shared: Page) -> tuple[int, int]:
    """Return the (low, high) bounds, both exclusive, of the ids to search for new records of all partitions."""
    # One statement returns the records together with its snapshot N. The ceiling of the scan is the last id drawn, read
    # after N was taken, so nothing that N sees lies above it.
    # The scan is the quick poll, one scan for all partitions that are caught up. The bounds are rounded to millions, so
    # that the statement is planned anew only once per million ids.
    # A page counts even if it reaches one stretch above `settled_id`.
    end = cursor.stretch_of(shared.settled_id) + 2 * cursor.STRETCH
    return cursor.stretch_of(shared.floor), end


def has_found_all(records: int, floor: int, drawn: int) -> bool:
    """Return True if a scan of the ids from `floor` to `drawn` cannot have missed any record."""
    # A quick poll counts completely or not at all. Nothing moves, and all partitions are polled in full, if there are
    # more records than the poll may return, more ids to search than a full poll would search, or more new records of a
    # partition than it has room for.
    # The scan is a quick poll that returned `records` records. The statement asks for one record more than the limit of
    # late records in a full poll. An answer of that length therefore shows that there may be more.
    return records <= cursor.MAX_LATE and drawn - floor <= cursor.STRETCH


def to_bits(partitions: Collection[int]) -> str:
    """Return a set of partition numbers as a string of 256 bits, for use as an SQL parameter."""
    # The quick poll's statement takes this form.
    return "".join("1" if number in partitions else "0" for number in range(256))
