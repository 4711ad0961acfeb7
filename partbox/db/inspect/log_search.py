"""Search the log for records with bounded work, by the indexes that delivery needs anyway.

Record ids and aggregate ids have an index. Times have none, but they rise with the ids, so bisection finds the ids of a
period. For a UUIDv7 event id or a used idempotency key, the log is read around the moment of the event."""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from psycopg.errors import QueryCanceled

from partbox.db.sql import Conn, fetch_first_row, fetch_one_row, fetch_rows
from partbox.protocol.hashing import partition_of

READ_STEPS: Final = (1_000, 9_000, 40_000, 150_000)  # records read at once; most searches end with the first step
FEW_STEPS: Final = READ_STEPS[:3]
MAX_HISTORY_ROWS: Final = 50_000  # rows of history that are read
MAX_IGNORED_SCAN: Final = 10_000  # records that are searched for ignored ones, which leave no row
MOMENT_OFFSETS: Final = (
    -3_600,
    -60,
    -2,
    4,
    60,
    3_600,
)  # seconds around the moment of an event, between seven stretches
# The order in which the seven stretches are read.
STRETCH_ORDER: Final = (3, 4, 2, 5, 1, 6, 0)
# Times of records may go back by this much, where transactions are open at the same time.
CLOCK_SKEW: Final = timedelta(seconds=1)
HIGHEST: Final = (1 << 63) - 1
UUID7: Final = 7
EDGE_QUERIES: Final = {True: ("find_edge", "find_in_log"), False: ("find_partition_edge", "find_in_partition")}


class LogPosition(NamedTuple):
    """The position of a record in the log: its id and the partition that it is in."""

    record_id: int
    partition: int


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The conditions of a search for records in the log.

    - None means any record.
    - `event_id`, `aggregate_id`: either of them must match, and all other conditions
    - `since`, `until`: matches were published at `since` or later and before `until`
    - `before`: matches have ids below this"""

    event_id: UUID | None = None
    aggregate_id: str | None = None
    event_type: str | None = None
    aggregate_type: str | None = None
    tenant_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int = HIGHEST


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page of search results: positions of records in the log, the newest first."""

    # If `read_since` is None, everything was read. Otherwise everything published since then was read, and the search
    # continues below the record id `before`, or cannot continue if that is None.

    positions: tuple[LogPosition, ...] = ()
    before: int | None = None
    read_since: datetime | None = None


def find_newest(conn: Conn, schema: str, record_filter: RecordFilter, limit: int) -> SearchPage:
    """Search the whole log backwards for the newest records that match the filter, up to `limit`."""
    return _read_backwards(conn, schema, record_filter, limit)


def find_by_id(conn: Conn, schema: str, record_filter: RecordFilter, limit: int, *, record_id: int) -> SearchPage:
    """Return the position of the record with this id, if it matches."""
    before = min(record_filter.before, record_id + 1)
    return _read_backwards(conn, schema, replace(record_filter, before=before), limit, low=record_id)


def find_by_aggregate(
    conn: Conn,
    schema: str,
    record_filter: RecordFilter,
    limit: int,
    *,
    aggregate_id: str,
    aggregate_type: str | None = None,
) -> SearchPage:
    """Search for the newest records with this aggregate id, and this aggregate type if it is given."""
    # They are all in one partition.
    partition, wanted = partition_of(aggregate_id), replace(record_filter, aggregate_id=aggregate_id)
    if aggregate_type is not None:
        wanted = replace(wanted, aggregate_type=aggregate_type)
    return _read_backwards(conn, schema, wanted, limit, partition=partition)


def find_by_event(conn: Conn, schema: str, record_filter: RecordFilter, limit: int, *, event_id: UUID) -> SearchPage:
    """Search for the records with this event id. Return their positions."""
    # The search reads around the moment in the id, in the partition of the id, or among the newest. An id may contain
    # no moment. An event without an aggregate id lies in the partition of its event id.
    wanted = replace(record_filter, event_id=event_id)
    if event_id.version == UUID7 and not (record_filter.since or record_filter.until):
        # The id may contain a moment that Python's calendar does not have.
        with suppress(ValueError, OverflowError):
            return _read_around(conn, schema, datetime.fromtimestamp((event_id.int >> 80) / 1000, UTC), wanted, limit)
    own = _read_backwards(conn, schema, wanted, limit, partition=partition_of(str(event_id)))
    return own if own.positions else find_newest(conn, schema, wanted, limit)


def find_by_key(conn: Conn, schema: str, record_filter: RecordFilter, limit: int, *, key: str) -> SearchPage:
    """Search for the records that were published with this idempotency key."""
    # The key must still be remembered. The log is read around the moment when the key was used.
    found = fetch_first_row(conn, "find_key", schema, key=key)
    return (
        SearchPage()
        if found is None
        else _read_around(conn, schema, found[1], replace(record_filter, event_id=found[0]), limit)
    )


def find_by_outcome(
    conn: Conn,
    schema: str,
    record_filter: RecordFilter,
    limit: int,
    *,
    outcomes: Sequence[str],
    subscription: str | None,
) -> SearchPage:
    """Search for records by the outcome of their delivery, the latest outcome first."""
    # The outcome was between the filter's `since` and `until`. "unhandled" means ignored for want of a handler: that
    # leaves no row, so it is looked for among the newest records.
    values = asdict(replace(record_filter, since=None, until=None)) | {
        "from": record_filter.since,
        "to": record_filter.until,
    }
    values |= {"outcomes": [*outcomes], "subscription": subscription, "limit": limit + 1, "most": MAX_HISTORY_ROWS}
    values |= {"most_read": MAX_IGNORED_SCAN}
    found = _read_befallen(conn, schema, values)
    positions = tuple(LogPosition(*place) for *place, _ in found[:limit])
    if len(found) > limit:
        return SearchPage(positions, read_since=found[limit - 1][-1])
    edge = fetch_first_row(conn, "find_unhandled_edge", schema, **values) if "unhandled" in outcomes else None
    return (
        SearchPage(positions)
        if edge is None
        else SearchPage(positions, edge[0], _find_publish_time(conn, schema, edge[0]))
    )


def _read_befallen(conn: Conn, schema: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    # After a timeout, half as many records are searched for ignored ones. `values` says how many it were.
    try:
        with conn.transaction():
            return fetch_rows(conn, "find_befallen", schema, **values)
    except QueryCanceled:
        if "unhandled" not in values["outcomes"] or values["most_read"] == 1:
            raise
    values["most_read"] //= 2
    return _read_befallen(conn, schema, values)


def _read_around(conn: Conn, schema: str, moment: datetime, record_filter: RecordFilter, limit: int) -> SearchPage:
    # Return the matching records near a moment.
    # The log is read in stretches of time around the moment, the likeliest stretch first.
    edges = [0, *(_find_first_id(conn, schema, moment + timedelta(seconds=each)) for each in MOMENT_OFFSETS), HIGHEST]
    stretches, incomplete = [*pairwise(edges)], SearchPage()
    for number in STRETCH_ORDER:
        low, before = stretches[number]
        found = _read_backwards(conn, schema, replace(record_filter, before=before), limit, low=low, steps=FEW_STEPS)
        if found.positions:
            return found
        if found.read_since is not None:
            incomplete = replace(found, before=None)
    return incomplete


def _read_backwards(
    conn: Conn,
    schema: str,
    record_filter: RecordFilter,
    limit: int,
    *,
    low: int = 0,
    steps: Sequence[int] | None = None,
    partition: int | None = None,
) -> SearchPage:
    """Read the log backwards, step by step, until `limit` matching records are found."""
    # The search ends too if nothing is left. It reads the whole log or one partition.
    values: dict[str, Any] = asdict(record_filter) | {"limit": limit + 1, "partition": partition}
    if record_filter.since is not None:
        low = max(low, _find_first_id(conn, schema, record_filter.since - CLOCK_SKEW))
    if record_filter.until is not None:
        values["before"] = min(record_filter.before, _find_first_id(conn, schema, record_filter.until + CLOCK_SKEW))
    (edge_of, within), before = EDGE_QUERIES[partition is None], values["before"]
    positions: list[LogPosition] = []
    sizes = deque(steps or READ_STEPS)
    while sizes:
        step = sizes.popleft()
        try:
            with conn.transaction():
                edge = fetch_first_row(conn, edge_of, schema, **values | {"low": low, "most": step - 1})
                reached = low if edge is None else edge[0]
                found = fetch_rows(conn, within, schema, **values | {"low": reached})
        except QueryCanceled:
            # The search ends with what it has read, or with half of the first step. It would never go on otherwise.
            if step == 1:
                raise
            sizes = deque([step // 2] if values["before"] == before else [])
            continue
        positions += [LogPosition(*each) for each in found]
        if len(positions) > limit:
            last = positions[limit - 1].record_id
            return SearchPage(tuple(positions[:limit]), last, _find_publish_time(conn, schema, last))
        if edge is None:
            return SearchPage(tuple(positions))
        values["before"] = reached
    return SearchPage(tuple(positions), values["before"], _find_publish_time(conn, schema, values["before"]))


def _find_publish_time(conn: Conn, schema: str, record_id: int) -> datetime | None:
    # If the record is gone, the time is that of the next one.
    found = fetch_first_row(conn, "find_published", schema, record_id=record_id)
    return found[0] if found else None


def _find_first_id(conn: Conn, schema: str, when: datetime) -> int:
    """Estimate the first record id that was published at the time `when` or later."""
    return int(fetch_one_row(conn, "find_moment", schema, when=when)[0])
