"""Connections to the test's database that stay in it from one test to the next: making them takes longer than a drain.

They are the kit's own, and idle between two tests.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString

import psycopg
from psycopg.pq import TransactionStatus

from partbox.db.connect import connect
from partbox.db.deadline import WatchedConnection
from partbox.db.sql import Conn
from partbox.db.type_conversion import DEFAULTS
from partbox.settings import Settings

NAME = "partbox testing"
FLUSH = "select pg_stat_force_next_flush()"  # rows written so far count from here on
ANEW = "discard all"
"""Ends what a session keeps: settings, role, prepared statements, temporary tables, advisory locks, subscriptions."""


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
        if conn is None or not _answers(conn):
            conn = self._kept[key] = connect(dsn, lease=settings.lease, pooler=settings.pooler, name=NAME)
        return conn

    def first_of(self, conn: WatchedConnection, schema: str) -> bool:
        """True for the first session of a drain on this connection and schema, which is to be checked."""
        first = (conn, schema) not in self._checked
        self._checked.add((conn, schema))
        return first

    def own(self, dsn: str) -> Conn:
        """A plain connection in autocommit without session state, for restoring the database."""
        conn = self._own_again(dsn)
        if conn is None:
            # Without a name, as the test would make it: RESET gives back the one that a session began with.
            conn = psycopg.connect(dsn, autocommit=True, context=DEFAULTS, prepare_threshold=None)
            self._own = (dsn, conn)
        return conn

    @contextmanager
    def lent(self, dsn: str, *, autocommit: bool) -> Iterator[psycopg.Connection[Any]]:
        """A connection for one test, in the state of a new one, over the session of `own`."""
        own = self.own(dsn)
        # Adapters, factories and prepared statements belong to the object, and so end with the test.
        conn = psycopg.Connection(own.pgconn)
        conn.autocommit = autocommit
        try:
            yield conn
        finally:
            if own.pgconn.transaction_status != TransactionStatus.IDLE or own.pgconn.pipeline_status:
                own.close()
            del conn.pgconn  # nobody uses it after the test, and it does not warn that it was left open

    def _own_again(self, dsn: str) -> Conn | None:
        """The connection of `own` in the state of a new one; None if there is none to that database."""
        if self._own is None or self._own[0] != dsn or not _answers(self._own[1], ANEW):
            return None
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


def _answers(conn: Conn, question: LiteralString = "") -> bool:
    """True if it still exists: a test may have ended it."""
    try:
        conn.execute(question)
    except psycopg.Error:
        conn.close()
        return False
    return True
