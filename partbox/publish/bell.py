"""Wakes workers: asks whether one sleeps, and remembers that none does, see `partbox.protocol.bell`; those that are
embedded in the application it wakes itself when it has committed events for them.

For each database that this process publishes into, as far as connections tell which: `Library.database`.
"""

import threading
import time
from collections.abc import Hashable
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from partbox.protocol.bell import Asking
from partbox.publish.transaction import AnyConnection

MOST = 256  # databases that are remembered

_places: WeakKeyDictionary[Any, Hashable] = WeakKeyDictionary()


def place_of(conn: AnyConnection) -> Hashable:
    """The database of a connection of psycopg."""
    server = conn.pgconn  # not the connection, which may be a proxy of a moment
    place = _places.get(server)
    if place is None:
        place = _places[server] = (server.host, server.port, server.db)
    return place


class Bell:
    """The memory of one outbox, by database. Other processes get an empty one. `rings` False: no publish asks."""

    def __init__(self, rings: bool = True) -> None:
        self._rings = rings
        self._known: dict[Hashable, Asking] = {}

    def asking(self, database: Hashable | None) -> "Inquirer | None":
        """Takes the answer of a statement that is sent now; None: it is not to ask. `database` None: it always asks."""
        if not self._rings:
            return None
        if database is None:
            return Inquirer(Asking(), 0.0)
        known = self._known.get(database)
        if known is None:
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known.setdefault(database, Asking())
        now = time.monotonic()
        return Inquirer(known, now) if known.asks(now) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Bell, (self._rings,)


class Inquirer:
    """A statement that asks, by when it was sent."""

    __slots__ = ("_known", "_sent")

    def __init__(self, known: Asking, sent: float) -> None:
        self._known = known
        self._sent = sent

    def heard(self, rows: Any) -> None:
        """The rows of its answer, the last column of the first of which is whether anybody sleeps; None: not waited
        for."""
        if rows:
            self._known.heard(self._sent, bool(rows[0][-1]))


class Wakeable(Protocol):
    """An embedded worker, as publishers see it."""

    def wake(self) -> None: ...


class EmbeddedWorkers:
    """Embedded workers, held weakly. Not sent to other processes, which have none."""

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
