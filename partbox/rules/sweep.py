"""The sweep: one scan in the order of ids for all partitions that have a backlog at about the same place.

Read partition by partition, each record of a backlog is found in another block of the table, as 256 partitions share
them. Read in the order of ids, neighbours lie in one block, which costs the server less than half, while most of what
it passes is wanted. For the cursor it is the same: what comes of a partition is the first of its records above its last
id, without a gap, so `new` of a full poll; only that the room is shared, and the records decide who gets how much.

Who lies far behind the others, or ahead of them, does not take part and is read by itself, as is who has no backlog. So
it is bounded however the records are spread: by their number and by a range of ids, not far longer than they should
need. In a range with few records the next poll had better look partition by partition, which steps over gaps.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from partbox.rules.cursor import Ask

LEAST = 64  # partitions: of fewer than a quarter, most of the records that a scan passes are not wanted
STRETCH = 4  # times the ids that the records should need if all partitions get the same number


class Sweep(NamedTuple):
    """Ids in (start, end], at most so many records; `last_ids` of those that take part, by partition."""

    start: int
    end: int
    most: int
    last_ids: Mapping[int, int]

    def beside(self, asks: Iterable[Ask]) -> list[int]:
        """The room of each of these in the rest of the poll: who takes part gets nothing new there."""
        return [0 if ask.partition in self.last_ids else ask.room for ask in asks]

    def is_cut(self, records: int, hi: int) -> bool:
        """True if there may be more up to `hi` than the so many records that it brought."""
        return records >= self.most or self.end < hi


def sweep(asks: Iterable[Ask], hi: int) -> Sweep | None:
    """The sweep for those of these, all with a backlog, that lie close together; None if it is not worth it.

    It needs room for as many records as they have together. `hi` is the ceiling of the poll.
    """
    roomy = sorted((ask for ask in asks if ask.room > 0), key=_last_id)
    if len(roomy) < LEAST:
        return None
    near = sum(ask.room for ask in roomy)
    start = max(roomy[0].last_id, roomy[len(roomy) // 2].last_id - near)
    end = start + STRETCH * near * 256 // len(roomy)
    level = [ask for ask in roomy if start <= ask.last_id < end]
    if len(level) < LEAST:
        return None
    most = sum(ask.room for ask in level)
    return Sweep(start, min(end, hi), most, {ask.partition: ask.last_id for ask in level})


def _last_id(ask: Ask) -> int:
    return ask.last_id
