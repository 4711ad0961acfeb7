"""Connections to the test's database that stay in it from one test to the next: making them takes longer than a drain.

They are the kit's own, and idle between two tests.
"""

from contextlib import suppress

import psycopg
from psycopg.pq import TransactionStatus

from partbox.db.connect import connect, connect_plain
from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn
from partbox.settings import Settings

NAME = "partbox testing"
FLUSH = "select pg_stat_force_next_flush()"  # rows written so far count from here on


class Sessions:
    """Connections by purpose, to one database at a time."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, float, bool], WatchedConnection] = {}
        self._own: tuple[str, Conn] | None = None
        self._checked: set[tuple[Conn, str]] = set()

    def get(self, dsn: str, settings: Settings, role: str) -> WatchedConnection:
        """A connection in autocommit, as workers have them: one that is kept, or a new one."""
        key = (role, dsn, settings.lease, settings.pooler)
        conn = self._kept.get(key)
        if conn is None or not _is_alive(conn):
            conn = self._kept[key] = connect(dsn, lease=settings.lease, pooler=settings.pooler, name=NAME)
        return conn

    def is_first(self, conn: WatchedConnection, schema: str) -> bool:
        """True for the first session of a drain on this connection and schema, which is to be checked."""
        first = (conn, schema) not in self._checked
        self._checked.add((conn, schema))
        return first

    def own(self, dsn: str) -> Conn:
        """A plain connection in autocommit, for restoring the database."""
        if self._own is None or self._own[0] != dsn or not _is_alive(self._own[1]):
            self._own = (dsn, connect_plain(dsn, application_name=NAME))
        return self._own[1]

    def pids(self) -> list[int]:
        return [conn.info.backend_pid for conn in self._all()]

    def flush(self) -> None:
        """Have the server count what was written through them. One that is not idle is closed."""
        for conn in self._all():
            with suppress(psycopg.Error):
                if conn.info.transaction_status == TransactionStatus.IDLE:
                    conn.execute(FLUSH)
                else:
                    conn.close()

    def close(self) -> None:
        """Close all; others are made when they are asked for."""
        for conn in self._all():
            conn.close()
        self._kept.clear()
        self._checked.clear()
        self._own = None

    def _all(self) -> list[Conn]:
        own = [] if self._own is None else [self._own[1]]
        return [conn for conn in (*self._kept.values(), *own) if not conn.closed]


def _is_alive(conn: Conn) -> bool:
    """True if it still exists: a test may have ended it."""
    try:
        conn.execute("")
    except psycopg.Error:
        conn.close()
        return False
    return True
