"""Segments of the log: which to create ahead of need, which have expired, and which are empty. The default segment has
no bounds and takes the ids that no other segment takes. It makes polls slower, and is emptied record by record."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import NamedTuple

# The least and the greatest number of empty segments ahead of the newest id. Between the two, as many are created as
# last for AHEAD_SECONDS.
MIN_AHEAD, MAX_AHEAD = 3, 15
# The number of segments that the retention spans. A purge by segments is coarser than a purge by record by this much.
SEGMENTS_RETAINED = 10

# Ids of a segment. With smaller segments, a quiet log would have many, and each poll pays for every segment.
SMALLEST, LARGEST = 2_000_000, 1_000_000_000
HOUR, DAY = 3_600.0, 86_400.0
# Seconds for which the segments ahead should last. No segment can be attached beside a pg_dump or a reader that stays.
AHEAD_SECONDS = 4 * HOUR
# Ids between the newest id and a new segment. A statement that began to publish before the segment was attached, and
# then draws an id of the segment, fails. PROOF_LEAD applies if a proof is needed. The ids of the proof must not be
# reached before the segment is attached, even if the process that made the proof died.
MIN_LEAD, PROOF_LEAD = 1_000_000, 4_000_000
# Bytes. A default segment up to this size is searched while it is locked. `segment_add` has the same limit.
SMALL_DEFAULT = 2 << 20


class Segment(NamedTuple):
    """A part of the log's table, for the record ids from `lower` up to but excluding `upper`."""

    # The ids and ages (seconds) of the oldest and newest record are None while the segment is empty.

    name: str
    lower: int | None
    upper: int | None
    size: int
    oldest: int | None
    oldest_age: float | None
    newest: int | None
    newest_age: float | None


class EventTrigger(NamedTuple):
    """A PostgreSQL event trigger, and its function, that runs when segments of the log are created or dropped."""

    name: str
    event: str
    function: str

    def __str__(self) -> str:
        return f"{self.name} ({self.event}, {self.function})"


class DrawnIds(NamedTuple):
    """The number of record ids drawn in the last `seconds` seconds, for an estimate of the speed of publishing."""

    ids: int
    seconds: float


class IdRange(NamedTuple):
    """A range of record ids, from `lower` up to but excluding `upper`."""

    lower: int
    upper: int


def compute_id_rate(stretches: Iterable[DrawnIds]) -> float:
    """Return the record ids drawn per second in the fastest of the given periods."""
    # A short burst counts as an hour's ids.
    return max((each.ids / max(each.seconds, HOUR) for each in stretches), default=0.0)


def compute_segment_length(ids_a_second: float, retain: float, most: float | None = None) -> int:
    """Return the number of record ids for a new segment of the log, in whole millions."""
    # It is a tenth of the ids that are drawn in the retention `retain` (seconds), at most `most`.
    ids = ids_a_second * retain / SEGMENTS_RETAINED
    ids = min(ids, most) if most else ids
    return int(min(max(ids, SMALLEST), LARGEST) // 1_000_000) * 1_000_000


def compute_length_for_size(segments: Sequence[Segment], retain_size: int | None) -> float | None:
    """Return the number of record ids that fill a tenth of `retain_size` bytes, or None if unlimited."""
    # `retain_size` is the size limit of the log. The estimate uses the mean size of the records so far. The result is
    # also None if there is no record to measure.
    full = [each for each in segments if each.size and each.oldest is not None and each.newest is not None]
    ids = sum((each.newest or 0) - (each.oldest or 0) for each in full)
    size = sum(each.size for each in full)
    return retain_size / SEGMENTS_RETAINED * ids / size if retain_size and ids and size else None


def find_default_segment(segments: Iterable[Segment]) -> Segment | None:
    return next((each for each in segments if each.upper is None), None)


def has_large_default(segments: Iterable[Segment]) -> bool:
    """Return True if the log's default segment (for all ids outside the others) is too large to search under a lock."""
    # A new segment may then only be attached after a proof that the default segment has none of its ids.
    found = find_default_segment(segments)
    return found is not None and found.size > SMALL_DEFAULT


def count_ahead(segments: Iterable[Segment], drawn: int) -> int:
    """Return the number of segments of the log that begin above the newest record id `drawn`."""
    return sum(1 for each in segments if each.lower is not None and each.lower > drawn)


def plan_segments(segments: Sequence[Segment], drawn: int, ids_a_second: float, ids: int) -> list[IdRange]:
    """Return the id ranges of the log segments to create now, in order, with `ids` ids each."""
    # The new segments follow the last segment. If its end is too near, or the default segment holds an id beyond it,
    # they begin above both the newest id and all ids in the default segment. Ids drawn until then go to the default
    # segment. While the default segment is large, all segments that the retention needs are created at once, because
    # one search of the default segment proves all of them.
    # There are none while enough segments lie ahead of the newest id.
    there = [each for each in segments if each.lower is not None and each.lower > drawn]
    lacking = ids_a_second * AHEAD_SECONDS - sum((each.upper or 0) - (each.lower or 0) for each in there)
    missing = max(MIN_AHEAD - len(there), min(MAX_AHEAD - len(there), ceil(lacking / ids)))
    if missing <= 0:
        return []
    if has_large_default(segments):
        missing += SEGMENTS_RETAINED
    start = _find_start(segments, drawn, ids_a_second)
    return [IdRange(start + ids * number, start + ids * (number + 1)) for number in range(missing)]


def _find_start(segments: Sequence[Segment], drawn: int, ids_a_second: float) -> int:
    found, large = find_default_segment(segments), has_large_default(segments)
    lead = max(PROOF_LEAD if large else MIN_LEAD, int(ids_a_second * (DAY if large else HOUR)))
    end = max((each.upper for each in segments if each.upper is not None), default=0)
    taken = max(drawn, (found.newest if found else None) or 0)
    start = taken + lead
    return end if end >= start else -(-start // 1_000_000) * 1_000_000


def must_end_proof(proof: IdRange, drawn: int) -> bool:
    """Return True if the constraint that keeps ids out of the default segment must go, before publishing reaches
    them."""
    # A killed process left the constraint.
    # The constraint is the proof of an id range: no record of the default segment lies in it.
    return proof.lower - drawn < PROOF_LEAD / 2


def list_expired(
    segments: Sequence[Segment], drawn: int, retain: float, retain_size: int | None
) -> Iterator[tuple[Segment, bool]]:
    """Yield the log segments that may be dropped, oldest first, each with True if size is the reason."""
    # Only full segments are dropped. A segment expires when its newest record is older than `retain` seconds. A segment
    # of any age also expires while that segment and the segments after it have more than `retain_size` bytes. The size
    # is the size of the log.
    # For each segment, the size of the log from that segment to the newest.
    sizes = list(accumulate((each.size for each in reversed(segments)), initial=0))[:0:-1]
    for each, rest in zip(segments, sizes, strict=True):
        if each.upper is None or each.newest_age is None or each.upper - 1 > drawn:
            continue
        if each.newest_age > retain:
            yield each, False
        elif retain_size is not None and rest > retain_size:
            yield each, True


def has_expired_records(segment: Segment, retain: float) -> bool:
    """Return True if the segment's oldest record is older than the retention `retain`, in seconds."""
    # The segment then contains a record to purge.
    return segment.oldest_age is not None and segment.oldest_age > retain


def list_empty_segments(segments: Iterable[Segment], drawn: int) -> list[Segment]:
    """Return the empty segments of the log that will never receive a record."""
    # The newest id lies beyond them.
    return [each for each in segments if each.upper is not None and each.upper - 1 <= drawn and each.oldest is None]
