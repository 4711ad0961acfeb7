"""The publisher's side of the bell (`partbox.protocol.bell`): which publish asks for the flag, and rings if it is up.

That the flag was down is remembered for each database that this process publishes into, as far as connections tell
which (`Library.database`). Workers that are embedded in the application need no ring: `EmbeddedWorkers` calls them.
"""

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
    """The database of a connection of psycopg."""
    server = conn.pgconn  # not the connection, which may be a proxy of a moment
    place = _database_keys.get(server)
    if place is None:
        place = _database_keys[server] = (server.host, server.port, server.db)
    return place


class Bell:
    """The memory of one outbox, by database; empty in another process. `rings` False: no publish asks, or rings."""

    def __init__(self, rings: bool = True) -> None:
        self._rings = rings
        self._memory: dict[Hashable, FlagMemory] = {}

    def start_query(self, database: Hashable | None) -> "Inquirer | None":
        """Return what hears the answer of a statement sent now; None: it is not to ask. `database` None: always ask."""
        if not self._rings:
            return None
        if database is None:
            return Inquirer(FlagMemory(), 0.0)
        known = self._memory.get(database)
        if known is None:
            if len(self._memory) >= MAX_DATABASES:
                self._memory.clear()
            known = self._memory.setdefault(database, FlagMemory())
        now = time.monotonic()
        return Inquirer(known, now) if known.should_ask(now) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Bell, (self._rings,)


class Inquirer:
    """One statement that asks whether the flag is up, and rings if it is; kept with the time when it was sent."""

    __slots__ = ("_memory", "_sent")

    def __init__(self, known: FlagMemory, sent: float) -> None:
        self._memory = known
        self._sent = sent

    def note_answer(self, rows: Any) -> None:
        """Note the answer: the last column of its first row says whether it rang. None: nobody waited for it."""
        if rows:
            self._memory.note_answer(self._sent, bool(rows[0][-1]))


class Wakeable(Protocol):
    """An embedded worker, as publishers see it."""

    def wake(self) -> None: ...


class EmbeddedWorkers:
    """Embedded workers, held weakly: they are called in this process, without a ring. Another process has none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: WeakSet[Wakeable] = WeakSet()

    def register(self, worker: Wakeable) -> None:
        with self._lock:
            self._workers.add(worker)

    def __bool__(self) -> bool:
        return bool(self._workers)

    def wake(self) -> None:
        """Have them poll at once."""
        with self._lock:
            workers = [*self._workers]
        for worker in workers:
            worker.wake()

    def __reduce__(self) -> tuple[Any, ...]:
        return EmbeddedWorkers, ()
