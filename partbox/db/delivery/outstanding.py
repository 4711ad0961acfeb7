"""Read the unfinished work of a subscription from its cursors and parked rows."""

from typing import NamedTuple

from partbox.db.sql import Conn, records, row
from partbox.protocol.outstanding import OutstandingWork


class UnfinishedEvents(NamedTuple):
    """Unfinished events of one kind. `due_in`: seconds until the first is due, None if none has a due time."""

    what: str
    events: int
    due_in: float | None


def outstanding(conn: Conn, schema: str, subscription: str) -> OutstandingWork:
    """Return the unfinished work of a subscription. A subscription that does not exist has none."""
    found = row(conn, "outstanding", schema, subscription=subscription)
    return OutstandingWork(*(found or ()))


def left_over(conn: Conn, schema: str, subscription: str) -> list[UnfinishedEvents]:
    """Return the kinds of unfinished events with their numbers. At most 1,000 unread records are counted."""
    return records(conn, UnfinishedEvents, "left_over", schema, subscription=subscription)
