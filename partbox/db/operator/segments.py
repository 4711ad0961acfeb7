"""Read the segments of the log, and change them. Each change is one call and one transaction."""

from typing import Any, NamedTuple

from partbox.db.sql import Conn, one_row, query, records, row
from partbox.protocol.segments import DrawnIds, EventTrigger, IdRange, Segment


class SegmentHold(NamedTuple):
    """A reason not to empty a segment, as the query `segment_holds` returns it."""

    reason: str
    subscription: str | None
    partition: int | None
    id: int | None
    rows: int | None


class EmptyResult(NamedTuple):
    """The result of emptying a segment: the obstacle, or None, and the bytes freed."""

    problem: str | None
    freed: int


def segments(conn: Conn, schema: str) -> list[Segment]:
    """Return all segments in the order of ids, the default segment last."""
    return records(conn, Segment, "segments", schema)


def drawn(conn: Conn, schema: str) -> int:
    """Return the newest id."""
    return int(one_row(conn, "segments_drawn", schema)[0])


def list_stretches(conn: Conn, schema: str) -> list[DrawnIds]:
    """Return the ids drawn lately, over shorter and longer stretches of time."""
    return records(conn, DrawnIds, "segments_pace", schema)


def exclusion(conn: Conn, schema: str) -> tuple[IdRange, bool] | None:
    """Return the ids kept out of the default segment, and whether a search has proven them absent, or None."""
    found = row(conn, "segments_proof", schema)
    return (IdRange(found[0], found[1]), found[2]) if found else None


def event_triggers(conn: Conn, schema: str) -> list[EventTrigger]:
    """Return the event triggers of the database that run when segments are made or dropped."""
    return records(conn, EventTrigger, "event_triggers", schema)


def note_problem(conn: Conn, schema: str, problem: str | None) -> None:
    """Note for `doctor` why segments cannot be changed. None: they can."""
    conn.execute(query("segments_failed", schema), {"problem": problem and problem.replace("\0", "")})


def holds(conn: Conn, schema: str, ids: IdRange, retain: float | None) -> list[SegmentHold]:
    """Return everything that keeps these ids from being emptied. With `retain` None their age is not considered."""
    return records(conn, SegmentHold, "segment_holds", schema, retain=retain, **ids._asdict())


def add(conn: Conn, schema: str, ids: IdRange) -> str | None:
    """Make a segment. Return the obstacle, or None."""
    return _problem(conn, "segment_add", schema, **ids._asdict())


def exclude(conn: Conn, schema: str, ids: IdRange | None) -> str | None:
    """Keep these ids out of the default segment, or no ids if None. Return the obstacle, or None."""
    return _problem(conn, "segment_exclude", schema, **(ids._asdict() if ids else {"lower": None, "upper": None}))


def prove(conn: Conn, schema: str) -> None:
    """Search the default segment for the excluded ids. This may take minutes."""
    one_row(conn, "segment_prove", schema)


def empty(conn: Conn, schema: str, lower: int, retain: float | None) -> EmptyResult:
    """Empty the segment that begins at `lower`, if nobody needs its records."""
    return EmptyResult(*one_row(conn, "segment_empty", schema, lower=lower, retain=retain))


def detach(conn: Conn, schema: str, lower: int) -> str | None:
    """Take the empty segment that begins at `lower` out of the log. Return the obstacle, or None."""
    return _problem(conn, "segment_detach", schema, lower=lower)


def drop(conn: Conn, schema: str) -> int:
    """Drop the segments that were taken out of the log, by anybody. Return their number."""
    return int(one_row(conn, "segment_drop", schema)[0])


def _problem(conn: Conn, name: str, schema: str, **values: Any) -> str | None:
    found: str | None = one_row(conn, name, schema, **values)[0]
    return found
