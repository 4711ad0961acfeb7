"""The life of the server that a session began in: a crash or a failover ends it, and the connection may not tell.

What a session remembers of ids and transaction ids holds in one life only. Its statements bring the life along with
what they read; if it is another the connection is closed, so that whoever uses it goes the way of a lost one.
"""

from typing import Any, NamedTuple

from psycopg import Connection, OperationalError

from partbox.db.deadline import WatchedConnection
from partbox.db.sql import query


class NewLifeError(OperationalError):
    """The server has crashed, or another has taken its place, since the session began."""


class Life(NamedTuple):
    """The sequence that an end of the server's life resets, and its value in this one."""

    sequence: int | None
    value: int | None


UNKNOWN = Life(None, None)
"""Of a server that cannot tell: PostgreSQL 14, or a role that may not set the sequence."""


def begin(conn: Connection[Any], schema: str) -> Life:
    """The life that the server is in."""
    row = conn.execute(query("life_begin", schema), {}).fetchone()
    return Life(*row) if row is not None else UNKNOWN


def of(conn: Connection[Any]) -> Life:
    """The life that the session of this connection began in."""
    return conn.life if isinstance(conn, WatchedConnection) and conn.life is not None else UNKNOWN


def live(conn: WatchedConnection, life: Life) -> None:
    """The session of this connection began in that life."""
    conn.life = life


def check(conn: Connection[Any], same: bool) -> None:
    """Close the connection unless the server is still in the `same` life. NewLifeError then."""
    if not same:
        conn.close()
        raise NewLifeError("the server has crashed or was replaced since: what was read of it does not hold any more")
