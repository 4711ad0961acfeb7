"""Records by their status, a page at a time, without payloads."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.db.sql import rows


@dataclass(frozen=True, slots=True)
class RecordStatus:
    """A record and what a subscription has made of it: `status` is pending, completed, or the state it is parked in.

    `attempts` that were counted and `last_error` are those of a parked one. `event_id` and `created_at` are None only
    if somebody took a parked record out of the log.
    """

    id: int
    event_id: UUID | None
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    partition: int
    created_at: datetime | None
    status: str
    attempts: int
    last_error: str | None


_COLUMNS = tuple(each.name for each in fields(RecordStatus))


def pending(conn: Connection[Any], schema: str, subscription: str, limit: int, after: int) -> list[RecordStatus]:
    """At most `limit` records above id `after` that are not consumed, by id."""
    return _page(conn, "page_pending", schema, {"subscription": subscription, "limit": limit, "after": after})


def parked(
    conn: Connection[Any], schema: str, subscription: str, states: Sequence[str], limit: int, after: int
) -> list[RecordStatus]:
    """At most `limit` records above id `after` that are parked in one of these states, by id."""
    values = {"subscription": subscription, "limit": limit, "after": after, "states": list(states)}
    return _page(conn, "page_parked", schema, values)


def completed(conn: Connection[Any], schema: str, subscription: str, limit: int, after: int) -> list[RecordStatus]:
    """At most `limit` records above id `after` that are done, by id."""
    return _page(conn, "page_completed", schema, {"subscription": subscription, "limit": limit, "after": after})


def _page(conn: Connection[Any], name: str, schema: str, values: dict[str, Any]) -> list[RecordStatus]:
    """Read a page, with planner settings that scan the primary key in order up to the limit."""
    with conn.transaction():
        rows(conn, "stats_plan", schema, limit=None)
        return [_record(*each) for each in rows(conn, name, schema, **values)]


def _record(*row: Any) -> RecordStatus:
    *known, created_at, status, attempts, last_error = row
    values = (*known, created_at and created_at.astimezone(UTC), status, attempts, last_error)
    return RecordStatus(**dict(zip(_COLUMNS, values, strict=True)))
