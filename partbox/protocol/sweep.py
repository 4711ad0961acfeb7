"""The sweep: one scan in the order of ids for all partitions that have a backlog at about the same place.

Read partition by partition, each record of a backlog is found in another block of the table, as 256 partitions share
them. Read in the order of ids, neighbours lie in one block, which costs the server less than half, while most of what
it passes is wanted. For the cursor it is the same: what comes of a partition is the first of its records above its last
id, without a gap, so `new` of a full poll; only that the room is shared, and the records decide who gets how much.

It begins with the oldest place at which enough partitions are close together, and keeps them together: who is a little
ahead waits until the others are there, for a page or two; who is behind is read by itself, more of it at a time, and
catches up. Without that those read by themselves got as much at a time as those swept and stayed apart: a third of a
backlog of 256 partitions was never swept. Who is far ahead does not wait, nor who has no backlog.

So it is bounded however the records are spread: by their number and by a range of ids, not far longer than they should
need. In a range with few records the next poll had better look partition by partition, which steps over gaps.

Where hardly anything is new a sweep is better still: one search in the index, however long the log, instead of one for
each partition. So if no more ids lie above the last ids of all than there are partitions, a brief sweep finds all that
is new, with or without a backlog.
"""

from collections.abc import Iterable, Mapping, Set
from operator import attrgetter
from typing import NamedTuple

from partbox.protocol.cursor import ReadRequest

_last_id = attrgetter("last_id")

MIN_PARTITIONS = 64  # partitions: of fewer than a quarter, most of the records that a scan passes are not wanted
STRETCH = 4  # times the ids that the records should need if all partitions get the same number


class Sweep(NamedTuple):
    """Ids in (start, end], at most so many records; `last_ids` of those that take part, by partition.

    Those `waiting` get nothing new in this poll, those behind get so many records `more`, each.
    """

    start: int
    end: int
    most: int
    last_ids: Mapping[int, int]
    waiting: Set[int] = frozenset()
    more: int = 0

    def room(self, ask: ReadRequest, widest: int) -> int:
        """The room of one of the asks; of those that take part, and of those behind, it may be the `widest`."""
        if ask.partition in self.last_ids:
            return widest
        if ask.partition in self.waiting:
            return 0
        is_behind = ask.room > 0 and ask.last_id < self.start
        return min(ask.room + self.more, widest) if is_behind else ask.room

    def rooms_beside(self, asks: Iterable[ReadRequest]) -> list[int]:
        """The room of each of these in the rest of the poll: who takes part gets nothing new there."""
        return [0 if ask.partition in self.last_ids else ask.room for ask in asks]

    def is_cut(self, records: int, hi: int) -> bool:
        """True if there may be more up to `hi` than the so many records that it brought."""
        return records >= self.most or self.end < hi


def sweep(asks: Iterable[ReadRequest], hi: int) -> Sweep | None:
    """The sweep for those of these, all with a backlog, that lie close together; None if it is not worth it.

    All together they get as many records as they have room for. `hi` is the ceiling of the poll.
    """
    roomy = sorted((ask for ask in asks if ask.room > 0), key=_last_id)
    if len(roomy) < MIN_PARTITIONS:
        return None
    reach = STRETCH * sum(ask.room for ask in roomy) * 256 // len(roomy)
    pairs = zip(roomy, roomy[MIN_PARTITIONS - 1 :], strict=False)
    behind = next((at for at, (first, last) in enumerate(pairs) if last.last_id - first.last_id < reach), None)
    if behind is None:
        return None
    start = roomy[behind].last_id
    end = start + reach
    level = [ask for ask in roomy if start <= ask.last_id < end]
    waiting = [ask for ask in roomy if end <= ask.last_id < end + reach]
    rooms = sum(ask.room for ask in level)
    stragglers = sum(ask.last_id < start for ask in roomy)
    more = rooms // 2 // stragglers if stragglers else 0
    most = rooms - more * stragglers + sum(ask.room for ask in waiting)
    last_ids = {ask.partition: ask.last_id for ask in level}
    return Sweep(start, min(end, hi), most, last_ids, {ask.partition for ask in waiting}, more)


def brief_sweep(asks: Iterable[ReadRequest], hi: int) -> Sweep | None:
    """The sweep that finds all that is new for these; None if more ids lie up to `hi` than one had better pass, or than
    one of them has room for."""
    roomy = [ask for ask in asks if ask.room > 0]
    start = min(map(_last_id, roomy), default=hi)
    if hi - start > len(roomy) or any(hi - ask.last_id > ask.room for ask in roomy):
        return None
    return Sweep(start, hi, hi - start + 1, {ask.partition: ask.last_id for ask in roomy})
