"""Aggregates that number their own events, and what publishers know to be committed.

A transaction locks the aggregates it touches, raises their numbers and publishes under them: a number is given out
once, in the order of publishing, and a rollback takes it back.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from psycopg import Connection

from partbox.chaos.application import ASYNC, SYNC
from partbox.chaos.oracle import Published
from partbox.db.sql import query
from partbox.events import Event
from partbox.outbox import Outbox

KIND: Final = "Chaos"


class Ledger:
    """`names` are the accounts that publishers share, the others belong to one publisher each."""

    def __init__(self, outbox: Outbox, count: int) -> None:
        self._outbox = outbox
        self._schema = outbox.settings.schema_name
        self.names = [f"account-{number:03}" for number in range(count)]
        self.prepared = [f"prepared-{number:03}" for number in range(count // 4)]
        self.held = [f"held-{number:03}" for number in range(count // 4)]
        self._lock = threading.Lock()
        self._committed: dict[str, Published] = {}
        self.rolled_back = 0

    def open(self, conn: Connection[Any]) -> None:
        conn.execute(query("chaos_open_accounts", self._schema), {"names": [*self.names, *self.prepared, *self.held]})

    def raised(self, conn: Connection[Any], names: Sequence[str], burst: int = 1) -> list[Published]:
        """Publish `burst` events of each of these accounts in the transaction of `conn`: many by COPY."""
        rows = conn.execute(query("chaos_raise", self._schema), {"names": list(names), "burst": burst}).fetchall()
        order = [(name, seq) for name, last in rows for seq in range(last - burst + 1, last + 1)]
        return self.published(conn, order)

    def published(self, conn: Connection[Any], order: Sequence[tuple[str | None, int | None]]) -> list[Published]:
        """Publish events of these aggregates with these numbers, in this order."""
        events = [
            Event(ASYNC if number % 3 == 0 else SYNC, {"seq": seq}, aggregate_type=KIND, aggregate_id=name)
            for number, (name, seq) in enumerate(order)
        ]
        ids = self._outbox.publish_many(conn, events)
        return [Published(str(id), name, seq) for id, (name, seq) in zip(ids, order, strict=True)]

    def committed(self, events: Iterable[Published]) -> None:
        """The server has said so: whatever happens from here on, these must be delivered."""
        with self._lock:
            self._committed.update((one.event, one) for one in events)

    def declined(self, count: int) -> None:
        """So many were rolled back on purpose: nobody may ever see them."""
        with self._lock:
            self.rolled_back += count

    @property
    def count(self) -> int:
        return len(self._committed)

    def truth(self, conn: Connection[Any]) -> list[Published]:
        """What is committed: the log, and what should be in it."""
        log = {row[0]: Published(*row) for row in conn.execute(query("chaos_log", self._schema), {})}
        with self._lock:
            return list((self._committed | log).values())
