"""Segments of the log: which to make ahead of need, which have had their time, which are empty shells.

A segment takes the ids from `lower` to below `upper`. The default one, which has neither, is the net: it takes the ids
that no segment does, slows polls down, and is emptied record by record.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import NamedTuple

MIN_AHEAD, MAX_AHEAD = 3, 15
"""Empty segments that are to lie ahead of the newest id: at least, and at most, until they last for `AHEAD_SECONDS`."""
SEGMENTS_RETAINED = 10
"""The segments that the retention is to span: so much coarser is a purge than it would be record by record."""

SMALLEST, LARGEST = 2_000_000, 1_000_000_000
"""Ids of a segment. With fewer a quiet log has many of them, which each poll pays for."""
HOUR, DAY = 3_600.0, 86_400.0
AHEAD_SECONDS = 4 * HOUR
"""Seconds for which the segments ahead are to last: beside a pg_dump, or a reader that stays, none is attached."""
MIN_LEAD, PROOF_LEAD = 1_000_000, 4_000_000
"""Ids that must at least lie between the newest and a new segment: a statement that began to publish before, and draws
an id of the segment afterwards, fails. `PROOF_LEAD`: where a proof is needed, which must not be reached before the
segment is there, even if whoever made it died."""
SMALL_DEFAULT = 2 << 20
"""Bytes of the default segment up to which it is searched while it is locked; `segment_add` says the same."""


class Segment(NamedTuple):
    """A segment; ids and ages (s) of its oldest and its newest record are None while it is empty."""

    name: str
    lower: int | None
    upper: int | None
    size: int
    oldest: int | None
    oldest_age: float | None
    newest: int | None
    newest_age: float | None


class EventTrigger(NamedTuple):
    """An event trigger of the database that runs when segments are made or dropped, and its function."""

    name: str
    event: str
    function: str

    def __str__(self) -> str:
        return f"{self.name} ({self.event}, {self.function})"


class DrawnIds(NamedTuple):
    """A number of ids, drawn in the last `seconds`."""

    ids: int
    seconds: float


class IdRange(NamedTuple):
    """The ids from `lower` to below `upper`."""

    lower: int
    upper: int


def id_rate(stretches: Iterable[DrawnIds]) -> float:
    """Ids a second: the fastest of these stretches. A burst is taken as an hour's."""
    return max((each.ids / max(each.seconds, HOUR) for each in stretches), default=0.0)


def segment_length(ids_a_second: float, retain: float, most: float | None = None) -> int:
    """Ids of a new segment: a tenth of what the retention (s) spans, at most `most`, in millions."""
    ids = ids_a_second * retain / SEGMENTS_RETAINED
    ids = min(ids, most) if most else ids
    return int(min(max(ids, SMALLEST), LARGEST) // 1_000_000) * 1_000_000


def length_for_size(segments: Sequence[Segment], retain_size: int | None) -> float | None:
    """Ids of a tenth of `retain_size` bytes, as large as records were so far; None: no limit, or nothing to go by."""
    full = [each for each in segments if each.size and each.oldest is not None and each.newest is not None]
    ids = sum((each.newest or 0) - (each.oldest or 0) for each in full)
    size = sum(each.size for each in full)
    return retain_size / SEGMENTS_RETAINED * ids / size if retain_size and ids and size else None


def default_segment(segments: Iterable[Segment]) -> Segment | None:
    return next((each for each in segments if each.upper is None), None)


def has_large_default(segments: Iterable[Segment]) -> bool:
    """True if the default segment must be proven to hold no id of a new segment before that is attached."""
    found = default_segment(segments)
    return found is not None and found.size > SMALL_DEFAULT


def count_ahead(segments: Iterable[Segment], drawn: int) -> int:
    """The segments that begin above the newest id."""
    return sum(1 for each in segments if each.lower is not None and each.lower > drawn)


def segments_to_add(segments: Sequence[Segment], drawn: int, ids_a_second: float, ids: int) -> list[IdRange]:
    """The segments of `ids` ids each to make now, in order; none while enough lie ahead, for long enough.

    They follow the last one. Where that is too near, or the default segment holds an id beyond it, they begin above
    both the newest id and all that the default one holds; what is drawn until then goes there. While it is large, all
    that the retention needs are made at once: every search of it proves them all.
    """
    there = [each for each in segments if each.lower is not None and each.lower > drawn]
    lacking = ids_a_second * AHEAD_SECONDS - sum((each.upper or 0) - (each.lower or 0) for each in there)
    missing = max(MIN_AHEAD - len(there), min(MAX_AHEAD - len(there), ceil(lacking / ids)))
    if missing <= 0:
        return []
    if has_large_default(segments):
        missing += SEGMENTS_RETAINED
    start = _start(segments, drawn, ids_a_second)
    return [IdRange(start + ids * number, start + ids * (number + 1)) for number in range(missing)]


def _start(segments: Sequence[Segment], drawn: int, ids_a_second: float) -> int:
    found, large = default_segment(segments), has_large_default(segments)
    lead = max(PROOF_LEAD if large else MIN_LEAD, int(ids_a_second * (DAY if large else HOUR)))
    end = max((each.upper for each in segments if each.upper is not None), default=0)
    taken = max(drawn, (found.newest if found else None) or 0)
    start = taken + lead
    return end if end >= start else -(-start // 1_000_000) * 1_000_000


def must_end_proof(proof: IdRange, drawn: int) -> bool:
    """True if a proof that a killed process left must end, because publishing may come to its ids."""
    return proof.lower - drawn < PROOF_LEAD / 2


def list_expired(
    segments: Sequence[Segment], drawn: int, retain: float, retain_size: int | None
) -> Iterator[tuple[Segment, bool]]:
    """The full segments whose time is over, the oldest first; True: for the size of the log, whatever their age.

    Their time is over when their newest record is older than `retain` (s), or while what begins with them is more than
    `retain_size` bytes.
    """
    sizes = list(accumulate((each.size for each in reversed(segments)), initial=0))[:0:-1]
    for each, rest in zip(segments, sizes, strict=True):
        if each.upper is None or each.newest_age is None or each.upper - 1 > drawn:
            continue
        if each.newest_age > retain:
            yield each, False
        elif retain_size is not None and rest > retain_size:
            yield each, True


def has_expired_records(segment: Segment, retain: float) -> bool:
    """True if its oldest record is older than the retention (s)."""
    return segment.oldest_age is not None and segment.oldest_age > retain


def empty_segments(segments: Iterable[Segment], drawn: int) -> list[Segment]:
    """The empty segments that nothing will come to any more."""
    return [each for each in segments if each.upper is not None and each.upper - 1 <= drawn and each.oldest is None]
