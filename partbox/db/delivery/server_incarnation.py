"""Recognize a server that crashed or was replaced during a session, which the connection may not show.

Ids and transaction ids that a session remembers are valid in one incarnation of the server only. In the database the
incarnation is the value of the sequence `life`, which a crash resets. Each statement returns the incarnation with its
rows, and the connection is closed if it has changed."""

from typing import NamedTuple

from psycopg import OperationalError
from psycopg.errors import InternalError_

from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, load_query


class NewIncarnationError(OperationalError):
    """Error: the server crashed or was replaced, so the ids that the database session remembers are not valid."""


class Incarnation(NamedTuple):
    """The identity of a running database server, which changes when the server crashes or is replaced.

    - `sequence`: the oid of a sequence that a crash resets
    - `value`: the value of that sequence"""

    sequence: int | None
    value: int | None


REPLACED_TEXT = "the server has crashed or was replaced since this session began: data read before is no longer valid"
UNKNOWN_INCARNATION = Incarnation(None, None)
"""The incarnation of a server for a role that may not set the sequence."""


def read_incarnation(conn: Conn, schema: str) -> Incarnation:
    """Return the server's identity value, which changes with each crash or replacement."""
    # Set a new value after a crash, and recreate a sequence that a promotion made unreadable.
    try:
        _ensure_sequence(conn, schema)
    except InternalError_:
        conn.execute(load_query("life_anew", schema), {})
        _ensure_sequence(conn, schema)
    # Several sessions may have set the value at the same time. This reads the value that remained.
    return _ensure_sequence(conn, schema)


def _ensure_sequence(conn: Conn, schema: str) -> Incarnation:
    row = conn.execute(load_query("life_begin", schema), {}).fetchone()
    return Incarnation(*row) if row is not None else UNKNOWN_INCARNATION


def incarnation_of(conn: Conn) -> Incarnation:
    """Return the server's identity when this connection's session began, or `UNKNOWN_INCARNATION`."""
    # The identity changes with each crash.
    return (
        conn.incarnation
        if isinstance(conn, WatchedConnection) and conn.incarnation is not None
        else UNKNOWN_INCARNATION
    )


def note_incarnation(conn: WatchedConnection, incarnation: Incarnation) -> None:
    # The identity (incarnation) changes with each crash.
    conn.incarnation = incarnation


def check_incarnation(conn: Conn, same: bool) -> None:
    """Close the connection and raise `NewIncarnationError` if the server is not the `same` as before."""
    # The server is another one if it crashed or was replaced since the session began.
    if not same:
        conn.close()
        raise NewIncarnationError(REPLACED_TEXT)
