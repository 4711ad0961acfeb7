"""Database connections of test kits. They stay open between tests, because opening them takes longer than a drain."""

from contextlib import suppress

import psycopg
from psycopg.pq import TransactionStatus

from partbox.db.connect import connect, connect_plain
from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn
from partbox.settings import Settings

NAME = "partbox testing"
# Makes the rows written so far count at once.
FLUSH = "select pg_stat_force_next_flush()"


class Sessions:
    """The database connections that a test kit reuses from one test to the next, one for each role.

    They are idle between two tests, and lead to one database at a time."""

    def __init__(self) -> None:
        self._kept_connections: dict[tuple[str, str, float, bool], WatchedConnection] = {}
        self._own_connection: tuple[str, Conn] | None = None
        self._checked_schemas: set[tuple[Conn, str]] = set()

    def get(self, dsn: str, settings: Settings, role: str) -> WatchedConnection:
        """Return the kept autocommit connection for a role, or open a new connection if there is none that works."""
        key = (role, dsn, settings.lease, settings.pooler)
        conn = self._kept_connections.get(key)
        if conn is None or not _is_alive(conn):
            conn = self._kept_connections[key] = connect(dsn, lease=settings.lease, pooler=settings.pooler, name=NAME)
        return conn

    def is_first(self, conn: WatchedConnection, schema: str) -> bool:
        """Return True if the schema was not yet checked on this connection, and remember that it is now."""
        # The drain that calls this method checks the schema.
        first = (conn, schema) not in self._checked_schemas
        self._checked_schemas.add((conn, schema))
        return first

    def own(self, dsn: str) -> Conn:
        """Return a plain autocommit connection for restoring the test's database."""
        if self._own_connection is None or self._own_connection[0] != dsn or not _is_alive(self._own_connection[1]):
            self._own_connection = (dsn, connect_plain(dsn, application_name=NAME))
        return self._own_connection[1]

    def pids(self) -> list[int]:
        return [conn.info.backend_pid for conn in self._list_open()]

    def flush(self) -> None:
        """Make the server's statistics count all rows written through these connections so far."""
        # A connection that is not idle is closed instead.
        for conn in self._list_open():
            with suppress(psycopg.Error):
                if conn.info.transaction_status == TransactionStatus.IDLE:
                    conn.execute(FLUSH)
                else:
                    conn.close()

    def close(self) -> None:
        """Close all kept database connections. Later calls of `get` and `own` open new ones."""
        for conn in self._list_open():
            conn.close()
        self._kept_connections.clear()
        self._checked_schemas.clear()
        self._own_connection = None

    def _list_open(self) -> list[Conn]:
        own = [] if self._own_connection is None else [self._own_connection[1]]
        return [conn for conn in (*self._kept_connections.values(), *own) if not conn.closed]


def _is_alive(conn: Conn) -> bool:
    # A test may have terminated the connection.
    try:
        conn.execute("")
    except psycopg.Error:
        conn.close()
        return False
    return True
