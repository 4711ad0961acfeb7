"""Read the unfinished work of a subscription from its cursors and parked rows."""

from typing import NamedTuple

from partbox.db.sql import Conn, records, row
from partbox.protocol.outstanding import OutstandingWork


class UnfinishedEvents(NamedTuple):
    """The number of unfinished events of one kind. `due_in` is the seconds until the first is due, None if none has a
    due time."""

    what: str
    events: int
    due_in: float | None


def outstanding(conn: Conn, schema: str, subscription: str) -> OutstandingWork:
    """Return the work that a subscription has not finished: unread records and parked rows. A subscription that does
    not exist has none."""
    found = row(conn, "outstanding", schema, subscription=subscription)
    return OutstandingWork(*(found or ()))


def left_over(conn: Conn, schema: str, subscription: str) -> list[UnfinishedEvents]:
    """Count the unfinished events of a subscription by kind. At most 1,000 unread records are counted."""
    return records(conn, UnfinishedEvents, "left_over", schema, subscription=subscription)
