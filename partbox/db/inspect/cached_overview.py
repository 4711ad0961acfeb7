"""One cached overview for all viewers: metrics scrapes, dashboards, terminals."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

import psycopg

from partbox.db.connect import connect
from partbox.db.inspect import stats
from partbox.db.inspect.stats import Overview
from partbox.db.schema import migrate
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.settings import Settings

T = TypeVar("T")

CLOSE_TIMEOUT: Final = 1.0  # seconds that `close` waits for a running use
CACHE_SECONDS: Final = 1.0  # seconds for which an overview, or an error, is returned again
STATEMENT_TIMEOUT: Final = 5.0  # seconds that a read, or connecting, may take
MAX_NAMED: Final = 20  # subscriptions, the last that viewers have named
# An overview is kept for this multiple of the time that reading it took, so that reading costs the server a fifth of a
# core at most.
CACHE_FACTOR: Final = 4


class CachedConnection:
    """A database connection that is kept open for reads, and replaced if it is lost.

    - Threads use the connection one after the other.
    - A statement is cut after `patience` seconds."""

    def __init__(self, settings: Settings, dsn: Callable[[], str], *, name: str, patience: float) -> None:
        self._settings = settings
        self._dsn = dsn
        self._name = name
        self._patience = patience
        self._lock = threading.Lock()
        self._conn: Conn | None = None
        self.closed = threading.Event()

    def run_read(self, read: Callable[[Conn], T]) -> T:
        """Call `read` with the kept-open connection and return its result."""
        # This call waits for any other thread that uses the connection. `read` must only read: if a kept connection
        # turns out to be lost, `read` is called once more with a new one. Raise `psycopg.Error`, `SchemaError` if this
        # program cannot work on the schema, and `PartboxError` after `close`.
        with self._lock:
            try:
                return self._read_or_retry(read)
            finally:
                if self.closed.is_set():
                    self._drop_connection()

    def close(self) -> None:
        """Close the kept connection for good."""
        # This happens now, or at the end of a use that takes longer than `CLOSE_TIMEOUT`.
        self.closed.set()
        if self._lock.acquire(timeout=CLOSE_TIMEOUT):
            try:
                self._drop_connection()
            finally:
                self._lock.release()

    def _read_or_retry(self, read: Callable[[Conn], T]) -> T:
        kept = self._conn is not None
        try:
            return read(self._ensure_connection())
        except psycopg.Error:
            lost = self._conn is not None and self._conn.closed
            if lost:
                self._drop_connection()
            if not (lost and kept):
                raise
        return read(self._ensure_connection())

    def _ensure_connection(self) -> Conn:
        if self.closed.is_set():
            raise PartboxError(f"{self._name} is closed: make a new one")
        if self._conn is None:
            conn = connect(self._dsn(), lease=self._patience, pooler=self._settings.pooler, name=self._name)
            try:
                migrate.check_schema_version(conn, self._settings.schema_name)
            except BaseException:
                conn.close()
                raise
            self._conn = conn
        return self._conn

    def _drop_connection(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


class CachedOverview:
    """A thread-safe cache of the state of all subscriptions.

    - The cache has a database connection of its own.
    - Concurrent callers share one read, which is kept for at least `fresh` seconds.
    - `clock` is monotonic, in seconds."""

    def __init__(
        self,
        settings: Settings,
        dsn: Callable[[], str],
        *,
        patience: float = STATEMENT_TIMEOUT,
        fresh: float = CACHE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schema = settings.schema_name
        self._cached = CachedConnection(settings, dsn, name="partbox glance", patience=patience)
        self._patience = patience
        self._fresh_seconds = fresh
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: Overview | psycopg.Error | PartboxError | None = None
        self._listed_names: deque[str] = deque(maxlen=MAX_NAMED)
        self._fresh_until = 0.0

    def read_overview(self) -> Overview:
        """Return the state of all subscriptions, read again if the cached one is too old."""
        # Raise `psycopg.Error` or `PartboxError`, which are cached too.
        with self._lock:
            if self._answer is None or self._clock() >= self._fresh_until:
                began = self._clock()
                self._answer = self._read()
                ended = self._clock()
                # An error is kept for the shortest time only.
                lasts = CACHE_FACTOR * (ended - began) if isinstance(self._answer, Overview) else 0.0
                self._fresh_until = ended + max(self._fresh_seconds, lasts)
            answer = self._answer
        if isinstance(answer, Overview):
            return answer
        # The same error is raised several times, and would collect tracebacks.
        raise answer.with_traceback(None)

    @property
    def closed(self) -> threading.Event:
        return self._cached.closed

    def list_partitions(self, subscription: str) -> None:
        """Include all partitions of this subscription in later overviews."""
        # There is no limit on their number here. Any thread may call this.
        if subscription not in self._listed_names:
            self._listed_names.append(subscription)

    def run_read(self, read: Callable[[Conn], T]) -> T:
        """Call `read` with the database connection of this cache and return its result."""
        # The read is one of a viewer. Errors are as in `read_overview`.
        return self._cached.run_read(read)

    def close(self) -> None:
        # The connection is closed now, unless a read takes longer than `CLOSE_TIMEOUT`.
        # A read that takes longer closes the connection at its end.
        self._cached.close()
        # Set without the lock, which a running read holds.
        self._fresh_until = 0.0

    def _read(self) -> Overview | psycopg.Error | PartboxError:
        try:
            named = [*self._listed_names]
            return self._cached.run_read(
                lambda conn: stats.read_overview(conn, self._schema, patience=self._patience, named=named)
            )
        except (psycopg.Error, PartboxError) as error:
            return error
