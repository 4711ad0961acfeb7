"""Read the unfinished work of a subscription from its cursors and parked rows."""

from typing import NamedTuple

from partbox.db.sql import Conn, fetch_first_row, fetch_records
from partbox.protocol.outstanding import OutstandingWork


class UnfinishedEvents(NamedTuple):
    """The unfinished events of one kind. `due_in`: seconds until the first is due, None without a due time."""

    what: str
    events: int
    due_in: float | None


def read_outstanding(conn: Conn, schema: str, subscription: str) -> OutstandingWork:
    """Return the events that a subscription has not finished: unread ones and ones set aside."""
    # The latter are parked rows. A subscription that does not exist has none.
    found = fetch_first_row(conn, "outstanding", schema, subscription=subscription)
    return OutstandingWork(*(found or ()))


def count_unfinished(conn: Conn, schema: str, subscription: str) -> list[UnfinishedEvents]:
    """Count the unfinished events of a subscription by kind, at most 1,000 unread ones."""
    return fetch_records(conn, UnfinishedEvents, "left_over", schema, subscription=subscription)
