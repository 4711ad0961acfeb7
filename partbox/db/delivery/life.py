"""The life of the server that a session began in: a crash or a failover ends it, and the connection may not tell.

Ids and transaction ids that a session remembers are valid in one life only. Its statements return the life with
what they read; if it has changed the connection is closed, so that it is handled as a lost one.
"""

from typing import Any, NamedTuple

from psycopg import Connection, OperationalError
from psycopg.errors import InternalError_

from partbox.db.deadline import WatchedConnection
from partbox.db.sql import query


class NewLifeError(OperationalError):
    """The server has crashed, or another has taken its place, since the session began."""


class Life(NamedTuple):
    """A sequence that a crash resets, and its value in this life."""

    sequence: int | None
    value: int | None


UNKNOWN = Life(None, None)
"""Of a server that cannot tell: PostgreSQL 14, or a role that may not set the sequence."""


def begin(conn: Connection[Any], schema: str) -> Life:
    """The life that the server is in. A sequence that cannot be read since a promotion is made anew."""
    try:
        _ensure(conn, schema)
    except InternalError_:
        conn.execute(query("life_anew", schema), {})
        _ensure(conn, schema)
    return _ensure(conn, schema)  # as it is now, if several have set it at once


def _ensure(conn: Connection[Any], schema: str) -> Life:
    row = conn.execute(query("life_begin", schema), {}).fetchone()
    return Life(*row) if row is not None else UNKNOWN


def of(conn: Connection[Any]) -> Life:
    """The life that the session of this connection began in."""
    return conn.life if isinstance(conn, WatchedConnection) and conn.life is not None else UNKNOWN


def live(conn: WatchedConnection, life: Life) -> None:
    """Note that the session of this connection began in `life`."""
    conn.life = life


def check(conn: Connection[Any], same: bool) -> None:
    """Close the connection and raise NewLifeError unless the server is still in the `same` life."""
    if not same:
        conn.close()
        raise NewLifeError("the server has crashed or was replaced since: what was read of it does not hold any more")
