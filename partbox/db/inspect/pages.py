"""Records by their status, a page at a time, without payloads."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from partbox.db.sql import Conn, records, rows


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


def page(
    conn: Conn, name: str, schema: str, subscription: str, limit: int, after: int, **more: object
) -> list[RecordStatus]:
    """At most `limit` records above id `after` that the query `name` finds, by id.

    Planner settings make the server scan the primary key in order up to the limit.
    """
    with conn.transaction():
        rows(conn, "stats_plan", schema, limit=None)
        return records(conn, RecordStatus, name, schema, subscription=subscription, limit=limit, after=after, **more)
