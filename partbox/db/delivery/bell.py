"""Raise, lower and read the flag of the bell, and notify its channel. See `partbox.protocol.bell`."""

from typing import NamedTuple

from partbox.db.blocking import fetch
from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, plain_query, query
from partbox.protocol.bell import RING_BACK, flag_duration


class BellSequence(NamedTuple):
    """The database sequence whose value tells publishers until when some worker sleeps (the bell's flag): its oid, and
    how many transactions the server allows to be prepared."""

    sequence: int
    prepared: int


def bell_sequence(conn: Conn, schema: str) -> BellSequence | None:
    """Look up the database sequence that holds the bell's flag (some worker sleeps, so publishers must notify). Return
    None if there is no such sequence that this role may set."""
    row = conn.execute(query("bell_found", schema), {}).fetchone()
    return None if row is None else BellSequence(*row)


def of(conn: Conn) -> int | None:
    """Return the oid of the sequence that holds the bell's flag, as polls on this connection read it. None means that
    they read no flag."""
    return conn.bell if isinstance(conn, WatchedConnection) else None


def raise_flag(conn: Conn, schema: str, sequence: int, nap: float) -> bool | None:
    """Tell publishers that this worker sleeps for at most `nap` seconds, by raising the bell's flag in the database.
    Return whether the flag was up already, or None if the server's notification queue is filling up."""
    values = {"bell": sequence, "ahead": round(flag_duration(nap) * 1000)}
    ((_, until, was_up),) = fetch(conn, "bell_raise", schema, values)
    return None if until is None else bool(was_up)


def lower_flag(conn: Conn, schema: str, sequence: int) -> None:
    """Lower the bell's flag, so that publishers stop notifying, then notify all sleeping workers so that they poll
    again. Two statements, because the flag must be down when the workers hear the notification."""
    fetch(conn, "bell_lower", schema, {"bell": sequence})
    notify(conn, schema, RING_BACK)


def notify(conn: Conn, schema: str, payload: str) -> bool:
    """Send a notification with this payload to all listeners on the schema's channel. Return False, with nothing sent,
    if the server's notification queue is filling up."""
    ((is_sent,),) = fetch(conn, "bell_say", schema, {"payload": payload})
    return bool(is_sent)


def listen(conn: Conn, schema: str) -> None:
    """Make this connection listen on the schema's notification channel from now on."""
    conn.execute(plain_query("bell_listen", schema))
