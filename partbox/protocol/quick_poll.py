"""The quick poll: one scan of a range of ids for all partitions that are caught up.

All of them have read everything that the shared page S sees. So a record of theirs is unread if, and only if, S does
not see it; and all such have ids above the floor of S, or above the bound of a transaction that S lists and that has
ended. One statement returns them, with its snapshot N. Its ceiling is the ids drawn, read after N was taken: nothing
that N sees lies above it.

It counts as a whole or not at all. If there are more records than it may return, or more ids to search than a full poll
would, or more new records of a partition than it has room for, nothing moves, and all is polled in full.

A partition that does not take part, since it is behind, draining or just claimed, keeps the page that it has.
"""

from collections.abc import Collection

from partbox.protocol import cursor
from partbox.protocol.horizon import Page


def ids(shared: Page) -> tuple[int, int]:
    """Exclusive (low, high) bounds of the ids that the next quick poll can scan.

    They are rounded to a million, so that the statement is planned anew once per million ids.
    """
    end = cursor.stretch_of(shared.settled) + 2 * cursor.STRETCH  # a page counts that reaches one above `settled`
    return cursor.stretch_of(shared.floor), end


def has_found_all(records: int, floor: int, drawn: int) -> bool:
    """True if a quick poll that searched ids from `floor` to `drawn` and returned so many records has found all.

    It is asked for one record more than a full poll would take late ones of a partition, which tells that there are
    more.
    """
    return records <= cursor.MAX_LATE and drawn - floor <= cursor.STRETCH


def bits(partitions: Collection[int]) -> str:
    """A set of partitions as a quick poll takes it."""
    return "".join("1" if number in partitions else "0" for number in range(256))
