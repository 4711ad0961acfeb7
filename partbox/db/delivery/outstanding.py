"""Read the unfinished work of a subscription from its cursors and parked rows."""

from typing import NamedTuple

from partbox.db.sql import Conn, fetch_first_row, fetch_records
from partbox.protocol.outstanding import OutstandingWork


class UnfinishedEvents(NamedTuple):
    """The number of unfinished events of one kind, and the seconds until the first is due.

    - `due_in`: None without a due time"""

    what: str
    events: int
    due_in: float | None


def read_outstanding(conn: Conn, schema: str, subscription: str) -> OutstandingWork:
    """Return the events that a subscription has not finished: unread events, and failed or waiting events."""
    # The latter are parked rows. A subscription that does not exist has none.
    found = fetch_first_row(conn, "outstanding", schema, subscription=subscription)
    return OutstandingWork(*(found or ()))


def count_unfinished(conn: Conn, schema: str, subscription: str) -> list[UnfinishedEvents]:
    """Count the unfinished events of a subscription by kind."""
    # At most 1,000 unread events are counted.
    return fetch_records(conn, UnfinishedEvents, "left_over", schema, subscription=subscription)
