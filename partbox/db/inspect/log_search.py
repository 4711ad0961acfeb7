"""The search for records in the log, by what they are: bounded work, with the indexes that delivery has.

A record id and an aggregate id have an index: of an aggregate id one partition is read, the newest first. Times have
none, but they rise with the ids, so the ids of a stretch of time are found by halves. An event id of ours (UUIDv7) says
when the event was made, and a used idempotency key when it was published: the log is read around that moment.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from partbox.db.sql import Conn, only, row, rows
from partbox.protocol.hashing import partition_of

STEPS: Final = (1_000, 9_000, 40_000, 150_000)  # records that are read at once: most searches end with the first
FEW_STEPS: Final = STEPS[:3]
MOST_ENTRIES: Final = 50_000  # rows of history that are read
MOST_READ: Final = 10_000  # records among which ignored ones are looked for that left no row
AROUND: Final = (-3_600, -60, -2, 4, 60, 3_600)  # seconds about the moment of an event, between seven stretches
LIKELIEST: Final = (3, 4, 2, 5, 1, 6, 0)  # those stretches in the order in which they are read
SKEW: Final = timedelta(seconds=1)  # by which times of records may go back, where transactions are open at once
HIGHEST: Final = (1 << 63) - 1
UUID7: Final = 7
EDGE: Final = {True: ("find_edge", "find_in_log"), False: ("find_partition_edge", "find_in_partition")}


class LogPlace(NamedTuple):
    """A record's place in the log."""

    record_id: int
    partition: int


@dataclass(frozen=True, slots=True)
class Sought:
    """A description of records, None matches all: either of `event_id` and `aggregate_id`, and everything else.

    They were published at `since` or later, before `until`, and have ids below `before`.
    """

    event_id: UUID | None = None
    aggregate_id: str | None = None
    event_type: str | None = None
    aggregate_type: str | None = None
    tenant_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int = HIGHEST


@dataclass(frozen=True, slots=True)
class Sighted:
    """The places of what was found, the newest first.

    `read_since`: None if everything was read; else the search was cut, and has read what was published since then. It
    goes on below the record id `before`, None where there is no way on.
    """

    places: tuple[LogPlace, ...] = ()
    before: int | None = None
    read_since: datetime | None = None


def newest(conn: Conn, schema: str, sought: Sought, limit: int) -> Sighted:
    """The newest records that match."""
    return _read(conn, schema, sought, limit)


def by_id(conn: Conn, schema: str, sought: Sought, limit: int, *, record_id: int) -> Sighted:
    """The record of an id."""
    before = min(sought.before, record_id + 1)
    return _read(conn, schema, replace(sought, before=before), limit, low=record_id)


def by_aggregate(conn: Conn, schema: str, sought: Sought, limit: int, *, aggregate_id: str) -> Sighted:
    """The newest records of an aggregate id, which are in one partition."""
    partition, wanted = partition_of(aggregate_id), replace(sought, aggregate_id=aggregate_id)
    return _read(conn, schema, wanted, limit, partition=partition)


def by_event(conn: Conn, schema: str, sought: Sought, limit: int, *, event_id: UUID) -> Sighted:
    """The records of an event id: around its moment if it says one, else of its own partition, or among the newest."""
    wanted = replace(sought, event_id=event_id)
    if event_id.version == UUID7 and not (sought.since or sought.until):
        with suppress(ValueError, OverflowError):  # a moment that no calendar of ours has
            return _around(conn, schema, datetime.fromtimestamp((event_id.int >> 80) / 1000, UTC), wanted, limit)
    # Without an aggregate id the event's own decides about the partition.
    own = _read(conn, schema, wanted, limit, partition=partition_of(str(event_id)))
    return own if own.places else newest(conn, schema, wanted, limit)


def by_key(conn: Conn, schema: str, sought: Sought, limit: int, *, key: str) -> Sighted:
    """The records of an idempotency key that is remembered: around the moment when it was used."""
    found = row(conn, "find_key", schema, key=key)
    return Sighted() if found is None else _around(conn, schema, found[1], replace(sought, event_id=found[0]), limit)


def befallen(
    conn: Conn, schema: str, sought: Sought, limit: int, *, outcomes: Sequence[str], subscription: str | None
) -> Sighted:
    """The records that one of these outcomes befell between `sought.since` and `sought.until`, the latest first.

    "unhandled": it was ignored for want of a handler, which left no row, so it is looked for among the newest records.
    """
    values = asdict(replace(sought, since=None, until=None)) | {"from": sought.since, "to": sought.until}
    values |= {"outcomes": [*outcomes], "subscription": subscription, "limit": limit + 1, "most": MOST_ENTRIES}
    values |= {"most_read": MOST_READ}
    found = rows(conn, "find_befallen", schema, **values)
    places = tuple(LogPlace(*place) for *place, _ in found[:limit])
    if len(found) > limit:
        return Sighted(places, read_since=found[limit - 1][-1])
    edge = row(conn, "find_unhandled_edge", schema, **values) if "unhandled" in outcomes else None
    return Sighted(places) if edge is None else Sighted(places, edge[0], _published(conn, schema, edge[0]))


def _around(conn: Conn, schema: str, moment: datetime, sought: Sought, limit: int) -> Sighted:
    """The records that match, read in stretches of time about a moment, the likeliest first."""
    edges = [0, *(_first_id(conn, schema, moment + timedelta(seconds=each)) for each in AROUND), HIGHEST]
    stretches, cut = [*pairwise(edges)], Sighted()
    for number in LIKELIEST:
        low, before = stretches[number]
        found = _read(conn, schema, replace(sought, before=before), limit, low=low, steps=FEW_STEPS)
        if found.places:
            return found
        if found.read_since is not None:
            cut = replace(found, before=None)
    return cut


def _read(
    conn: Conn,
    schema: str,
    sought: Sought,
    limit: int,
    *,
    low: int = 0,
    steps: Sequence[int] | None = None,
    partition: int | None = None,
) -> Sighted:
    """Read step after step, backwards, until `limit` records are found, or nothing is left: the log, or a partition."""
    values: dict[str, Any] = asdict(sought) | {"limit": limit + 1, "partition": partition}
    if sought.since is not None:
        low = max(low, _first_id(conn, schema, sought.since - SKEW))
    if sought.until is not None:
        values["before"] = min(sought.before, _first_id(conn, schema, sought.until + SKEW))
    edge_of, within = EDGE[partition is None]
    places: list[LogPlace] = []
    for step in steps or STEPS:
        edge = row(conn, edge_of, schema, **values | {"low": low, "most": step - 1})
        reached = low if edge is None else edge[0]
        places += [LogPlace(*each) for each in rows(conn, within, schema, **values | {"low": reached})]
        if len(places) > limit:
            last = places[limit - 1].record_id
            return Sighted(tuple(places[:limit]), last, _published(conn, schema, last))
        if edge is None:
            return Sighted(tuple(places))
        values["before"] = reached
    return Sighted(tuple(places), values["before"], _published(conn, schema, values["before"]))


def _published(conn: Conn, schema: str, record_id: int) -> datetime | None:
    """The time of a record, or of the next one, should it be gone."""
    found = row(conn, "find_published", schema, record_id=record_id)
    return found[0] if found else None


def _first_id(conn: Conn, schema: str, when: datetime) -> int:
    """About the first id that was published at `when` or later."""
    return int(only(conn, "find_moment", schema, when=when)[0])
