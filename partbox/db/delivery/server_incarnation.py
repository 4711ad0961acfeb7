"""The incarnation of the server that a session began in: a crash or failover ends it, and the connection may not tell.

Ids and transaction ids that a session remembers are valid in one incarnation only. Its statements return it with what
they read; if it has changed the connection is closed, so that it is handled as a lost one. In the database it is the
sequence `life`.
"""

from typing import NamedTuple

from psycopg import OperationalError
from psycopg.errors import InternalError_

from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn, query


class NewIncarnationError(OperationalError):
    """The server has crashed, or another has taken its place, since the session began."""


class Incarnation(NamedTuple):
    """A sequence that a crash resets, and its value in this incarnation."""

    sequence: int | None
    value: int | None


REPLACED_TEXT = "the server has crashed or was replaced since: what was read of it does not hold any more"
UNKNOWN_INCARNATION = Incarnation(None, None)
"""The incarnation of a server that cannot tell: PostgreSQL 14, or a role that may not set the sequence."""


def begin(conn: Conn, schema: str) -> Incarnation:
    """The incarnation that the server is in. A sequence that cannot be read since a promotion is made anew."""
    try:
        _ensure(conn, schema)
    except InternalError_:
        conn.execute(query("life_anew", schema), {})
        _ensure(conn, schema)
    return _ensure(conn, schema)  # as it is now, if several have set it at once


def _ensure(conn: Conn, schema: str) -> Incarnation:
    row = conn.execute(query("life_begin", schema), {}).fetchone()
    return Incarnation(*row) if row is not None else UNKNOWN_INCARNATION


def of(conn: Conn) -> Incarnation:
    """The incarnation that the session of this connection began in."""
    return (
        conn.incarnation
        if isinstance(conn, WatchedConnection) and conn.incarnation is not None
        else UNKNOWN_INCARNATION
    )


def note(conn: WatchedConnection, incarnation: Incarnation) -> None:
    """Note that the session of this connection began in `incarnation`."""
    conn.incarnation = incarnation


def check(conn: Conn, same: bool) -> None:
    """Close the connection and raise NewIncarnationError unless the server is still in the `same` one."""
    if not same:
        conn.close()
        raise NewIncarnationError(REPLACED_TEXT)
