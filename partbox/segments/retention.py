"""Empty segments that every subscription has passed, drop empty ones, and explain the obstacles for all others."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from psycopg.errors import DeadlockDetected, LockNotAvailable

from partbox.db.operator import segments as steps
from partbox.db.operator.segments import SegmentHold
from partbox.db.sql import Conn
from partbox.protocol import segments as rules
from partbox.protocol.segments import IdRange, Segment
from partbox.segments.attempts import try_step
from partbox.settings import Settings
from partbox.text.wording import format_count

# The phrase for a whole segment, and for its oldest record.
_PLAIN_REASONS = {
    "open": ("it is not full yet", "it is not full yet"),
    "young": ("its newest records are younger than retain_done", "younger than retain_done"),
    "archive": ("its newest records are not archived yet", "not archived yet"),
    "empty": ("it has only dead records, which are kept", "dead: replay or discard it"),
}


class SegmentRetention(NamedTuple):
    """A segment (table partition by ids) of the log and the reasons why it is not emptied."""

    # If `record` is set, only the segment's oldest record, with that id, was examined.

    segment: Segment
    holds: list[SegmentHold]
    record: int | None = None

    @property
    def is_emptied_next(self) -> bool:
        """True if the next maintenance run will empty the segment as a whole, because nothing keeps it."""
        return self.record is None and self.segment.oldest is not None and not self.holds

    @property
    def is_needed(self) -> bool:
        """True if a subscription needs the segment's records or they are not archived yet."""
        # Age is then not the only obstacle to emptying it.
        return any(each.reason in ("cursor", "spilled", "parked", "archive") for each in self.holds)


def empty_expired_segments(conn: Conn, settings: Settings, stopped: Callable[[], bool]) -> tuple[tuple[str, ...], int]:
    """Empty every expired segment of the log that no subscription needs. Return their names and the bytes freed."""
    # TRUNCATE locks one segment, but polls lock all of them. So it is requested only when nobody needs the segment any
    # more, after everything that can be done before.
    schema, names, freed = settings.schema_name, [], 0
    for segment, by_size in _list_expired(conn, settings):
        if stopped():
            break
        assert segment.lower is not None
        with suppress(LockNotAvailable, DeadlockDetected):
            done = steps.empty_segment(conn, schema, segment.lower, None if by_size else settings.retain_done)
            if done.problem is None:
                names.append(segment.name)
                freed += done.freed
    return tuple(names), freed


def find_archive_limit(conn: Conn, settings: Settings) -> int:
    """Return the newest record id in the expired segments, up to which records must be archived, or 0."""
    # Segments expire by age or size.
    return max((each.newest or 0 for each, _ in _list_expired(conn, settings)), default=0)


def drop_empty_segment(conn: Conn, settings: Settings) -> tuple[str, ...]:
    """Detach the oldest empty segment (table partition) from the log, drop it and return its name."""
    # DETACH locks the whole log for an instant, so it is the last step of a maintenance. Dropping the detached segment
    # waits for the disk and blocks nobody.
    # Only one is detached each time, because that locks the whole log. A detached segment is dropped now, or by a later
    # call, for instance after a kill. If a lock is taken nothing happens.
    schema = settings.schema_name
    empty_segments = rules.list_empty_segments(steps.list_segments(conn, schema), steps.find_newest_id(conn, schema))
    first = next(((each.name, each.lower) for each in empty_segments if each.lower is not None), None)
    detached = first is not None and try_step(partial(steps.detach_segment, conn, schema, first[1])) is None
    try_step(partial(steps.drop_detached, conn, schema))
    return (first[0],) if first is not None and detached else ()


def list_retentions(conn: Conn, settings: Settings) -> list[SegmentRetention]:
    """Return every segment of the log in id order, with the obstacles that keep it from being emptied."""
    # The next maintenance empties a segment without obstacles. A segment that is not full, and the default one, lose
    # records one by one, so their oldest record is examined.
    schema = settings.schema_name
    drawn, by_size = (
        steps.find_newest_id(conn, schema),
        {each.name for each, size in _list_expired(conn, settings) if size},
    )
    return [
        _find_holds(conn, settings, each, drawn, None if each.name in by_size else settings.retain_done)
        for each in steps.list_segments(conn, schema)
    ]


def list_reasons(held: SegmentRetention) -> list[str]:
    """Return a phrase for each reason why a segment of the log, or its oldest record, is kept."""
    # The oldest record is named if only that was examined.
    about = "" if held.record is None else f"record {held.record}, its oldest: "
    return [about + _describe_hold(each, held.record is not None) for each in held.holds]


def _describe_hold(hold: SegmentHold, single: bool) -> str:
    if hold.reason in _PLAIN_REASONS:
        of_segment, of_record = _PLAIN_REASONS[hold.reason]
        return of_record if single else of_segment
    match hold.reason:
        case "cursor":
            return (
                f"subscription {hold.subscription!r} has not consumed it yet: "
                f"partition {hold.partition} is at id {hold.id}"
            )
        case "parked":
            return (
                f"subscription {hold.subscription!r} has parked {format_count(hold.rows or 0, 'record')} of it, "
                f"the first with id {hold.id} in partition {hold.partition}"
            )
        case "spilled":
            return _describe_spill(hold)
        case "dead":
            return f"{format_count(hold.rows or 0, 'dead record')} are too many to set aside: replay or discard them"
        case other:
            return other


def _describe_spill(hold: SegmentHold) -> str:
    others = (hold.rows or 1) - 1
    more = f", and {format_count(others, 'other aggregate')}" if others else ""
    return (
        f"in subscription {hold.subscription!r} events of aggregates that are held up wait in the log: "
        f"{hold.aggregate_type} {hold.aggregate_id!r} from id {hold.id} on{more}"
    )


def _find_holds(conn: Conn, settings: Settings, segment: Segment, drawn: int, retain: float | None) -> SegmentRetention:
    lower, upper, oldest = segment.lower, segment.upper, segment.oldest
    if lower is not None and upper is not None and upper - 1 <= drawn:
        return SegmentRetention(segment, steps.list_holds(conn, settings.schema_name, IdRange(lower, upper), retain))
    if oldest is None:
        return SegmentRetention(segment, [])
    return SegmentRetention(
        segment, steps.list_holds(conn, settings.schema_name, IdRange(oldest, oldest + 1), retain), oldest
    )


def _list_expired(conn: Conn, settings: Settings) -> list[tuple[Segment, bool]]:
    schema = settings.schema_name
    found, drawn = steps.list_segments(conn, schema), steps.find_newest_id(conn, schema)
    return list(rules.list_expired(found, drawn, settings.retain_done, settings.retain_size))
