"""Raise, lower and read the flag of the bell, and notify its channel. See `partbox.protocol.bell`."""

from typing import NamedTuple

from partbox.db.blocking import fetch
from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, plain_query, query
from partbox.protocol.bell import RING_BACK, flag_duration


class BellSequence(NamedTuple):
    """The sequence that holds the flag: its oid, and how many transactions the server allows to be prepared."""

    sequence: int
    prepared: int


def bell_sequence(conn: Conn, schema: str) -> BellSequence | None:
    """Return the bell's sequence, or None if there is none that this role may set."""
    row = conn.execute(query("bell_found", schema), {}).fetchone()
    return None if row is None else BellSequence(*row)


def of(conn: Conn) -> int | None:
    """Return the oid of the sequence whose flag the polls of this connection read, or None if they read none."""
    return conn.bell if isinstance(conn, WatchedConnection) else None


def raise_flag(conn: Conn, schema: str, sequence: int, nap: float) -> bool | None:
    """Raise the flag for naps of `nap` seconds. Return whether it was up, or None if the server's queue is filling
    up."""
    values = {"bell": sequence, "ahead": round(flag_duration(nap) * 1000)}
    ((_, until, was_up),) = fetch(conn, "bell_raise", schema, values)
    return None if until is None else bool(was_up)


def lower_flag(conn: Conn, schema: str, sequence: int) -> None:
    """Lower the flag, then notify all sleepers, in two statements: the flag must be down when they hear it."""
    fetch(conn, "bell_lower", schema, {"bell": sequence})
    notify(conn, schema, RING_BACK)


def notify(conn: Conn, schema: str, payload: str) -> bool:
    """Notify all listeners of the schema. Return False, with nothing sent, if the server's queue is filling up."""
    ((is_sent,),) = fetch(conn, "bell_say", schema, {"payload": payload})
    return bool(is_sent)


def listen(conn: Conn, schema: str) -> None:
    """Listen on the schema's channel from now on."""
    conn.execute(plain_query("bell_listen", schema))
