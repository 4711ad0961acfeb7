"""The sweep: one scan in id order for all partitions that have a backlog at about the same id.

256 partitions share the blocks of the table. If a backlog is read partition by partition, each record is found in
another block. In id order, neighbours lie in the same block, which costs the server less than half, provided that most
of the scanned records are wanted."""

from collections.abc import Iterable, Mapping, Set
from operator import attrgetter
from typing import NamedTuple

from partbox.protocol.cursor import ReadRequest

_last_id = attrgetter("last_id")

# With fewer than a quarter of the 256 partitions, most of the records that a scan passes are not wanted.
MIN_PARTITIONS = 64
# Multiple of the ids that the records should need if all partitions get the same number of records.
STRETCH = 4


class Sweep(NamedTuple):
    """A single scan of the log in id order for many partitions, instead of one search for each partition."""

    # The scan covers the ids in (start, end] and at most `max_records` records. `last_ids` maps the partitions that
    # take part to their last ids. The partitions in `waiting_partitions` get no new records in this poll. Each
    # partition that is behind gets room for `extra_room` additional records.

    start: int
    end: int
    max_records: int
    last_ids: Mapping[int, int]
    waiting_partitions: Set[int] = frozenset()
    extra_room: int = 0

    def compute_room(self, ask: ReadRequest, unshared_room: int) -> int:
        """Return the number of new records that one partition may get in this poll."""
        # For partitions that take part or that are behind, the room can be as much as `unshared_room`.
        if ask.partition in self.last_ids:
            return unshared_room
        if ask.partition in self.waiting_partitions:
            return 0
        is_behind = ask.room > 0 and ask.last_id < self.start
        return min(ask.room + self.extra_room, unshared_room) if is_behind else ask.room

    def compute_rooms_beside(self, asks: Iterable[ReadRequest]) -> list[int]:
        """Return the number of new records that each partition may get outside the common scan."""
        # Partitions that the sweep reads get none in the rest of the poll.
        return [0 if ask.partition in self.last_ids else ask.room for ask in asks]

    def is_cut(self, records: int, hi: int) -> bool:
        """Return True if the scan may have left out records with ids up to `hi`."""
        # A scan that stopped before the end may have missed records of any partition, so no partition counts as read to
        # the end.
        # The sweep returned `records` records.
        return records >= self.max_records or self.end < hi


def plan_sweep(asks: Iterable[ReadRequest], hi: int) -> Sweep | None:
    """Plan one common scan for partitions at nearby positions, or return None if it is not worthwhile."""
    # For the cursor, a sweep makes no difference: the records of each partition are its first records above its last
    # id, without a gap, like the new records of a full poll. Only the room is shared, and the order of the records
    # decides how much each partition gets. The sweep starts at the lowest id at which enough partitions are close
    # together, and keeps them together. A partition that is a little ahead waits for a page or two until the others
    # have come up. A partition that is behind is read by itself, with more room, and catches up. Without that,
    # partitions read by themselves got as much at a time as partitions in the sweep and stayed apart: a third of a
    # backlog of 256 partitions was never swept. Partitions that are far ahead, or that have no backlog, do not wait. A
    # sweep is bounded by a number of records and by a range of ids that is little longer than the records should need,
    # however the records are distributed. In a range with few records, the next poll should search partition by
    # partition, which steps over gaps.
    # The sweep serves the requests that lie close together in the log. All requests must have a backlog. The sweep
    # returns as many records as the partitions have room for together. `hi` is the ceiling of the poll.
    roomy = sorted((ask for ask in asks if ask.room > 0), key=_last_id)
    if len(roomy) < MIN_PARTITIONS:
        return None
    reach = STRETCH * sum(ask.room for ask in roomy) * 256 // len(roomy)
    pairs = zip(roomy, roomy[MIN_PARTITIONS - 1 :], strict=False)
    # Find the lowest place at which MIN_PARTITIONS requests lie within the reach of one scan.
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


def plan_brief_sweep(asks: Iterable[ReadRequest], hi: int) -> Sweep | None:
    """Plan one scan that finds the few new records of all partitions, or return None if it would be too long."""
    # If hardly anything is new, a sweep is one index search, however long the log is, instead of one search for each
    # partition. If there are no more ids above the lowest last id than there are partitions, a brief sweep finds
    # everything new, with or without a backlog.
    # The sweep finds everything new for the requests if hardly anything is new. The result is None if there are more
    # ids up to `hi` than a scan should pass, or than one of the partitions has room for.
    roomy = [ask for ask in asks if ask.room > 0]
    start = min(map(_last_id, roomy), default=hi)
    if hi - start > len(roomy) or any(hi - ask.last_id > ask.room for ask in roomy):
        return None
    return Sweep(start, hi, hi - start + 1, {ask.partition: ask.last_id for ask in roomy})
