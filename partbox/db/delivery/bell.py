"""Raise, lower and read the flag of the bell, and notify its channel. See `partbox.protocol.bell`."""

from collections.abc import Collection
from typing import NamedTuple

from psycopg.sql import Identifier

from partbox.db.blocking import fetch
from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, fetch_rows, load_query, load_script
from partbox.protocol.bell import FLAG_TIME, RING_BACK, build_channel_name


class BellSequence(NamedTuple):
    """The database sequence by which sleeping workers ask publishers for a notification."""

    # The value of the sequence tells publishers until when a worker sleeps. `sequence` is its oid, and `prepared` is
    # the number of transactions that the server allows to be prepared.

    sequence: int
    prepared: int


def find_bell_sequence(conn: Conn, schema: str) -> BellSequence | None:
    """Find the database sequence by which sleeping workers ask for notifications. None if this role may set none."""
    # The sequence holds the bell's flag: if some worker sleeps, publishers must notify.
    row = conn.execute(load_query("bell_found", schema), {}).fetchone()
    return None if row is None else BellSequence(*row)


def bell_of(conn: Conn) -> int | None:
    """Return the oid of the sequence by which sleeping workers ask for notifications, or None if polls do not read
    it."""
    # The sequence holds the bell's flag. Polls on this connection read it.
    return conn.bell if isinstance(conn, WatchedConnection) else None


def raise_flag(conn: Conn, schema: str, sequence: int) -> bool | None:
    """Ask publishers for a notification for the next `FLAG_TIME` seconds, because this worker sleeps."""
    # The bell's flag in the database is raised. Return whether the flag was up already, or None if the server's
    # notification queue is filling up.
    values = {"bell": sequence, "ahead": round(FLAG_TIME * 1000)}
    ((_, until, was_up),) = fetch(conn, "bell_raise", schema, values)
    return None if until is None else bool(was_up)


def lower_flag(conn: Conn, schema: str, sequence: int) -> None:
    """Tell publishers that no notifications are needed any more, and wake all sleeping workers."""
    # Two statements are needed: the bell's flag must be down when the workers hear the notification and poll again.
    fetch(conn, "bell_lower", schema, {"bell": sequence})
    notify_listeners(conn, schema, RING_BACK)


def notify_listeners(conn: Conn, schema: str, payload: str) -> bool:
    """Send a notification to all listeners of the schema. Return False if the server's queue is filling up."""
    # Nothing is sent if the queue is filling up.
    ((is_sent,),) = fetch(conn, "bell_say", schema, {"payload": payload})
    return bool(is_sent)


def listen(conn: Conn, schema: str, types: Collection[str] | None = None) -> None:
    """Receive the notifications of a schema on this connection. With `types`, rings about other types may be left
    out."""
    found = None if types is None else fetch_rows(conn, "bell_channels", schema, types=[*types])
    for (channel,) in [(build_channel_name(schema),)] if found is None else found:
        conn.execute(load_script("bell_listen", heard=Identifier(channel)))
