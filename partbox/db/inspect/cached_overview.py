"""One cached overview for all viewers: scrapes, pages, terminals."""

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

CLOSE_TIMEOUT: Final = 1.0  # seconds that closing waits for who uses it
CACHE_SECONDS: Final = 1.0  # seconds for which an answer, or a failure, is given again
STATEMENT_TIMEOUT: Final = 5.0  # seconds that a look, or connecting, may take
MAX_NAMED: Final = 20  # subscriptions that viewers have asked for, the last
CACHE_FACTOR: Final = (
    4  # an answer lasts so many times as long as it took: looking costs the server a fifth of a core at most
)


class CachedConnection:
    """A cached read connection; any thread may `use` it, one at a time. Statements are cut after `patience` seconds."""

    def __init__(self, settings: Settings, dsn: Callable[[], str], *, name: str, patience: float) -> None:
        self._settings = settings
        self._dsn = dsn
        self._name = name
        self._patience = patience
        self._lock = threading.Lock()
        self._conn: Conn | None = None
        self.closed = threading.Event()

    def use(self, read: Callable[[Conn], T]) -> T:
        """Return `read(conn)`, which only reads; retried once if the cached connection turns out to be lost.

        Raises psycopg.Error; SchemaError if this program cannot work on the schema; PartboxError after `close`.
        """
        with self._lock:
            try:
                return self._use_or_retry(read)
            finally:
                if self.closed.is_set():
                    self._drop_connection()

    def close(self) -> None:
        """Close the connection for good: at once, or when a use that takes longer ends."""
        self.closed.set()
        if self._lock.acquire(timeout=CLOSE_TIMEOUT):
            try:
                self._drop_connection()
            finally:
                self._lock.release()

    def _use_or_retry(self, read: Callable[[Conn], T]) -> T:
        kept = self._conn is not None
        try:
            return read(self._connection())
        except psycopg.Error:
            lost = self._conn is not None and self._conn.closed
            if lost:
                self._drop_connection()
            if not (lost and kept):
                raise
        return read(self._connection())

    def _connection(self) -> Conn:
        if self.closed.is_set():
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

    def _drop_connection(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


class CachedOverview:
    """The overview of all subscriptions; thread-safe, and concurrent callers share one answer.

    `clock` is monotonic, in seconds. Uses its own connection, opened at first use.
    """

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
        self._fresh = fresh
        self._clock = clock
        self._lock = threading.Lock()
        self._answer: Overview | psycopg.Error | PartboxError | None = None
        self._named: deque[str] = deque(maxlen=MAX_NAMED)
        self._until = 0.0

    def overview(self) -> Overview:
        """Return the overview, at most a second old. Raises psycopg.Error and PartboxError, cached as long."""
        with self._lock:
            if self._answer is None or self._clock() >= self._until:
                began = self._clock()
                self._answer = self._read()
                ended = self._clock()
                # A failure is kept for the shortest time.
                lasts = CACHE_FACTOR * (ended - began) if isinstance(self._answer, Overview) else 0.0
                self._until = ended + max(self._fresh, lasts)
            answer = self._answer
        if isinstance(answer, Overview):
            return answer
        raise answer.with_traceback(None)

    @property
    def closed(self) -> threading.Event:
        """Set when it is closed for good."""
        return self._cached.closed

    def list_partitions(self, subscription: str) -> None:
        """From the next look on, list the partitions of this one however many subscriptions there are. Any thread."""
        if subscription not in self._named:
            self._named.append(subscription)

    def query(self, read: Callable[[Conn], T]) -> T:
        """Return `read(conn)` on the same connection, for what else a viewer reads. Raises as `overview` does."""
        return self._cached.use(read)

    def close(self) -> None:
        """Close the connection for good; a look that takes longer closes it when it ends."""
        self._cached.close()
        self._until = 0.0  # without the lock, which such a look holds

    def _read(self) -> Overview | psycopg.Error | PartboxError:
        try:
            named = [*self._named]
            return self._cached.use(
                lambda conn: stats.overview(conn, self._schema, patience=self._patience, named=named)
            )
        except (psycopg.Error, PartboxError) as error:
            return error
