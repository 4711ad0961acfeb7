"""The publisher's side of the bell (`partbox.protocol.bell`): read the flag when necessary, and ring if it is up.
Workers embedded in the application need no ring: `EmbeddedWorkers` wakes them."""

import threading
import time
from collections.abc import Hashable
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from partbox.protocol.bell import FlagMemory
from partbox.publish.transaction import AnyConnection

MAX_DATABASES = 256  # databases that are remembered

_database_keys: WeakKeyDictionary[Any, Hashable] = WeakKeyDictionary()


def database_key_of(conn: AnyConnection) -> Hashable:
    """Return a key (host, port, database name) that identifies the database of a psycopg connection."""
    # Use libpq's connection as the key. The outer object may be a short-lived proxy.
    server = conn.pgconn
    place = _database_keys.get(server)
    if place is None:
        place = _database_keys[server] = (server.host, server.port, server.db)
    return place


class Bell:
    """A notifier that wakes sleeping workers when the application publishes events.

    It remembers for each database that the flag of sleeping workers is down. With `is_enabled` False, no publish reads
    the flag or notifies workers."""

    def __init__(self, is_enabled: bool = True) -> None:
        self._is_enabled = is_enabled
        self._memory: dict[Hashable, FlagMemory] = {}

    def start_query(self, database: Hashable | None) -> "FlagQuery | None":
        """Return a FlagQuery if the next publish has to ask the database whether a worker sleeps, else None."""
        # The record notes whether the publish statement found the bell's flag up. A `database` of None means that the
        # flag is always read.
        if not self._is_enabled:
            return None
        if database is None:
            return FlagQuery(FlagMemory(), 0.0)
        known = self._memory.get(database)
        if known is None:
            if len(self._memory) >= MAX_DATABASES:
                self._memory.clear()
            known = self._memory.setdefault(database, FlagMemory())
        now = time.monotonic()
        return FlagQuery(known, now) if known.should_ask(now) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Bell, (self._is_enabled,)


class FlagQuery:
    """The question of one publish to the database, whether a worker sleeps and must be notified."""

    # The record has the time at which the statement was sent. The statement reads the bell's flag, and notifies the
    # worker if it sleeps.

    __slots__ = ("_memory", "_sent_at")

    def __init__(self, memory: FlagMemory, sent_at: float) -> None:
        self._memory = memory
        self._sent_at = sent_at

    def note_answer(self, rows: Any) -> None:
        """Remember whether the publish statement notified a sleeping worker."""
        # The last column of the first row says so. `rows` is None if nobody waited for the answer.
        if rows:
            self._memory.note_answer(self._sent_at, bool(rows[0][-1]))


class Wakeable(Protocol):
    def wake(self) -> None: ...


class EmbeddedWorkers:
    """The workers inside this process, which a publish wakes directly, without a notification.

    A copy in another process is empty. The references are weak."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: WeakSet[Wakeable] = WeakSet()

    def register(self, worker: Wakeable) -> None:
        with self._lock:
            self._workers.add(worker)

    def __bool__(self) -> bool:
        return bool(self._workers)

    def wake(self) -> None:
        """Make the workers embedded in this process look for new events at once."""
        with self._lock:
            # Call the workers without the lock, because `wake` may take locks of its own.
            workers = [*self._workers]
        for worker in workers:
            worker.wake()

    def __reduce__(self) -> tuple[Any, ...]:
        return EmbeddedWorkers, ()
