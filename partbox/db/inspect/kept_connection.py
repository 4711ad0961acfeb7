"""A cached read connection that reconnects."""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection

from partbox.db.connect import connect
from partbox.db.schema import migrate
from partbox.errors import PartboxError
from partbox.settings import Settings

T = TypeVar("T")

CLOSING: Final = 1.0  # seconds that closing waits for who uses it


class KeptConnection:
    """A cached read connection; any thread may `use` it, one at a time. Statements are cut after `patience` seconds."""

    def __init__(self, settings: Settings, dsn: Callable[[], str], *, name: str, patience: float) -> None:
        self._settings = settings
        self._dsn = dsn
        self._name = name
        self._patience = patience
        self._lock = threading.Lock()
        self._conn: Connection[Any] | None = None
        self._closed = False

    def use(self, look: Callable[[Connection[Any]], T]) -> T:
        """Return `look(conn)`, which only reads; retried once if the cached connection turns out to be lost.

        Raises psycopg.Error; SchemaError if this program cannot work on the schema; PartboxError after `close`.
        """
        with self._lock:
            try:
                return self._look(look)
            finally:
                if self._closed:
                    self._drop()

    def close(self) -> None:
        """Close the connection for good: at once, or when a use that takes longer ends."""
        self._closed = True
        if self._lock.acquire(timeout=CLOSING):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _look(self, look: Callable[[Connection[Any]], T]) -> T:
        kept = self._conn is not None
        try:
            return look(self._connection())
        except psycopg.Error:
            if not self._lost() or not kept:
                raise
        return look(self._connection())

    def _connection(self) -> Connection[Any]:
        if self._closed:
            raise PartboxError(f"{self._name} is closed: make a new one")
        if self._conn is None:
            conn = connect(self._dsn(), lease=self._patience, pooler=self._settings.pooler, name=self._name)
            try:
                migrate.check(conn, self._settings.schema_name)
            except BaseException:
                conn.close()
                raise
            self._conn = conn
        return self._conn

    def _lost(self) -> bool:
        """True if the connection is lost; it is then dropped."""
        if self._conn is None or not self._conn.closed:
            return False
        self._drop()
        return True

    def _drop(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
