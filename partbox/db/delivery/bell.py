"""The bell's flag, which is raised and lowered here, and the channel of rings: see `partbox.protocol.bell`."""

from typing import NamedTuple

from partbox.db.blocking import fetch
from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, plain_query, query
from partbox.protocol.bell import RING_BACK, flag_duration


class BellSequence(NamedTuple):
    """The sequence, by its oid, and how many transactions the server lets be prepared."""

    sequence: int
    prepared: int


def bell_sequence(conn: Conn, schema: str) -> BellSequence | None:
    """None: there is none that this role may set."""
    row = conn.execute(query("bell_found", schema), {}).fetchone()
    return None if row is None else BellSequence(*row)


def of(conn: Conn) -> int | None:
    """The sequence whose flag the polls of this connection return; None if they do not."""
    return conn.bell if isinstance(conn, WatchedConnection) else None


def raise_flag(conn: Conn, schema: str, sequence: int, nap: float) -> bool | None:
    """Raise the flag for naps of `nap` seconds from now on; whether it was up before.

    None, and nothing done, where the server's notification queue is filling up.
    """
    values = {"bell": sequence, "ahead": round(flag_duration(nap) * 1000)}
    ((_, until, was_up),) = fetch(conn, "bell_raise", schema, values)
    return None if until is None else bool(was_up)


def lower_flag(conn: Conn, schema: str, sequence: int) -> None:
    """Lower the flag, then call those who sleep back: two statements, for it must be down when they hear it."""
    fetch(conn, "bell_lower", schema, {"bell": sequence})
    notify(conn, schema, RING_BACK)


def notify(conn: Conn, schema: str, payload: str) -> bool:
    """Notify all who listen; False where the server's notification queue is filling up."""
    ((is_sent,),) = fetch(conn, "bell_say", schema, {"payload": payload})
    return bool(is_sent)


def listen(conn: Conn, schema: str) -> None:
    """Hear the rings of a schema on this connection."""
    conn.execute(plain_query("bell_listen", schema))
