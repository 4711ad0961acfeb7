"""The unfinished work of a subscription, as its cursors and parked rows say."""

from typing import NamedTuple

from partbox.db.sql import Conn, records, row
from partbox.protocol.outstanding import OutstandingWork


class UnfinishedEvents(NamedTuple):
    """Events of one kind that are not finished; `due_in`: seconds until the first is due, None if it has no time."""

    what: str
    events: int
    due_in: float | None


def outstanding(conn: Conn, schema: str, subscription: str) -> OutstandingWork:
    """Return the unfinished work of a subscription, none of one that does not exist."""
    found = row(conn, "outstanding", schema, subscription=subscription)
    return OutstandingWork(*(found or ()))


def left_over(conn: Conn, schema: str, subscription: str) -> list[UnfinishedEvents]:
    """Return the kinds of unfinished events with their numbers; of records to be read at most 1,000 are counted."""
    return records(conn, UnfinishedEvents, "left_over", schema, subscription=subscription)
