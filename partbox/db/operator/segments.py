"""Read the segments of the log, and change them. Each change is one call and one transaction."""

from typing import Any, NamedTuple

from partbox.db.sql import Conn, fetch_first_row, fetch_one_row, fetch_records, load_query
from partbox.protocol.segments import DrawnIds, EventTrigger, IdRange, Segment


class SegmentHold(NamedTuple):
    """A reason to keep the records of a log segment, such as a subscription that needs them."""

    reason: str
    subscription: str | None
    partition: int | None
    id: int | None
    rows: int | None
    aggregate_type: str | None
    aggregate_id: str | None


class EmptyResult(NamedTuple):
    """The bytes freed by emptying a segment of the log, or the problem that prevented the emptying.

    - `problem`: None if the segment was emptied"""

    problem: str | None
    freed: int


def list_segments(conn: Conn, schema: str) -> list[Segment]:
    """Return all segments of the log (its parts by ranges of record ids), in the order of ids."""
    # The default segment is the last.
    return fetch_records(conn, Segment, "segments", schema)


def find_newest_id(conn: Conn, schema: str) -> int:
    """Return the newest record id that was drawn from the sequence."""
    return int(fetch_one_row(conn, "segments_drawn", schema)[0])


def list_stretches(conn: Conn, schema: str) -> list[DrawnIds]:
    """Return how many record ids were issued in recent periods of different lengths."""
    # Each number comes with its seconds.
    return fetch_records(conn, DrawnIds, "segments_pace", schema)


def find_exclusion(conn: Conn, schema: str) -> tuple[IdRange, bool] | None:
    """Return the record ids kept out of the log's default segment, and whether that is proven, or None."""
    # None means that no ids are kept out. A search proves that the segment has no such ids.
    found = fetch_first_row(conn, "segments_proof", schema)
    return (IdRange(found[0], found[1]), found[2]) if found else None


def list_event_triggers(conn: Conn, schema: str) -> list[EventTrigger]:
    """Return the database's event triggers that run when log segments are made or dropped."""
    return fetch_records(conn, EventTrigger, "event_triggers", schema)


def note_problem(conn: Conn, schema: str, problem: str | None) -> None:
    """Store the reason why log segments cannot be changed, for the command `doctor` to report."""
    # None means that they can be changed.
    conn.execute(load_query("segments_failed", schema), {"problem": problem and problem.replace("\0", "")})


def list_holds(conn: Conn, schema: str, ids: IdRange, retain: float | None) -> list[SegmentHold]:
    """Return all reasons to keep the records with these ids."""
    # With `retain` None the age of the records is not considered.
    return fetch_records(conn, SegmentHold, "segment_holds", schema, retain=retain, **ids._asdict())


def add_segment(conn: Conn, schema: str, ids: IdRange) -> str | None:
    """Add a segment for this range of record ids to the log. Return the obstacle, or None on success."""
    return _run_change(conn, "segment_add", schema, **ids._asdict())


def exclude_ids(conn: Conn, schema: str, ids: IdRange | None) -> str | None:
    """Keep this range of record ids out of the log's default segment. Return the obstacle, or None."""
    # None as the range keeps no ids out.
    return _run_change(conn, "segment_exclude", schema, **(ids._asdict() if ids else {"lower": None, "upper": None}))


def prove_exclusion(conn: Conn, schema: str) -> None:
    """Search the log's default segment to prove that it has none of the excluded record ids."""
    # This may take minutes.
    fetch_one_row(conn, "segment_prove", schema)


def empty_segment(conn: Conn, schema: str, lower: int, retain: float | None) -> EmptyResult:
    """Delete all records of a log segment, if nobody needs them."""
    # The segment begins at the id `lower`.
    return EmptyResult(*fetch_one_row(conn, "segment_empty", schema, lower=lower, retain=retain))


def detach_segment(conn: Conn, schema: str, lower: int) -> str | None:
    """Take an empty segment out of the log. Return the obstacle, or None on success."""
    # The segment begins at the id `lower`.
    return _run_change(conn, "segment_detach", schema, lower=lower)


def drop_detached(conn: Conn, schema: str) -> int:
    """Drop the segments that were taken out of the log. Return their number."""
    # Anybody may have taken them out.
    return int(fetch_one_row(conn, "segment_drop", schema)[0])


def _run_change(conn: Conn, name: str, schema: str, **values: Any) -> str | None:
    found: str | None = fetch_one_row(conn, name, schema, **values)[0]
    return found
