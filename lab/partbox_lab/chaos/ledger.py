"""Aggregates that number their own events, and the events that are known to be committed.

A transaction locks its aggregates, raises their numbers, and publishes under the new numbers. A number is given out
once and in the order of publishing, and a rollback takes it back.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

from psycopg import Connection

from partbox.events import Event
from partbox.outbox import Outbox
from partbox_lab.chaos import statements
from partbox_lab.chaos.application import ASYNC, SYNC
from partbox_lab.chaos.oracle import LoggedEvent

KIND: Final = "Chaos"


class Accounts:
    """The numbers of the aggregates, in a table of the outbox's schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def open(self, conn: Connection[Any], names: Sequence[str]) -> None:
        """Insert accounts that start at 0."""
        statements.open_accounts(conn, self.schema, list(names))

    def raised(self, conn: Connection[Any], names: Sequence[str], burst: int = 1) -> list[tuple[str, int]]:
        """Lock accounts, raise their numbers by `burst`, and return each name with its new numbers in order."""
        rows = statements.raise_numbers(conn, self.schema, names, burst)
        return [(name, seq) for name, last in rows for seq in range(last - burst + 1, last + 1)]

    def log(self, conn: Connection[Any]) -> list[LoggedEvent]:
        """Return the events in the log, in the order of ids."""
        return [LoggedEvent(*row) for row in statements.log(conn, self.schema)]


class Ledger:
    """The committed events of a run, and the means to publish more."""

    def __init__(self, outbox: Outbox, count: int) -> None:
        self._outbox = outbox
        self._silent = Outbox(outbox.settings.dsn, schema=outbox.settings.schema_name, bell="off")
        self._accounts = Accounts(outbox.settings.schema_name)
        # All publishers share `names`. Each other list belongs to one publisher.
        self.names = [f"account-{number:03}" for number in range(count)]
        self.prepared = [f"prepared-{number:03}" for number in range(count // 4)]
        self.held = [f"held-{number:03}" for number in range(count // 4)]
        self.large = [f"large-{number:03}" for number in range(count // 8)]
        self.leaping = [f"leaping-{number:03}" for number in range(count // 8)]
        self._lock = threading.Lock()
        self._committed: dict[str, LoggedEvent] = {}
        self.rolled_back = 0

    def open(self, conn: Connection[Any]) -> None:
        """Insert all accounts."""
        self._accounts.open(conn, [*self.names, *self.prepared, *self.held, *self.large, *self.leaping])

    def raised(self, conn: Connection[Any], names: Sequence[str], burst: int = 1, size: int = 0) -> list[LoggedEvent]:
        """Publish `burst` numbered events for each account by one call, with `size` extra bytes each."""
        return self.published(conn, self._accounts.raised(conn, names, burst), size)

    def raised_silently(self, conn: Connection[Any], names: Sequence[str]) -> list[LoggedEvent]:
        """Publish an event for each account without the bell: a transaction that notifies cannot be prepared."""
        return self._published(self._silent, conn, self._accounts.raised(conn, names, 1), 0)

    def published(
        self, conn: Connection[Any], order: Sequence[tuple[str | None, int | None]], size: int = 0
    ) -> list[LoggedEvent]:
        """Publish events with given pairs of aggregate and number, either of which may be None."""
        return self._published(self._outbox, conn, order, size)

    def _published(
        self, outbox: Outbox, conn: Connection[Any], order: Sequence[tuple[str | None, int | None]], size: int
    ) -> list[LoggedEvent]:
        more = {"more": "x" * size} if size else {}
        events = [
            _event(ASYNC if number % 3 == 0 else SYNC, name, {"seq": seq, **more})
            for number, (name, seq) in enumerate(order)
        ]
        ids = outbox.publish_many(conn, events)
        return self._noted(conn, [LoggedEvent(str(id), name, seq) for id, (name, seq) in zip(ids, order, strict=True)])

    def _noted(self, conn: Connection[Any], events: list[LoggedEvent]) -> list[LoggedEvent]:
        # The note is in the same transaction: if the answer to the commit is lost, the note still proves it.
        statements.note(conn, self._accounts.schema, [(each.event, each.aggregate, each.seq) for each in events])
        return events

    def inserted(self, conn: Connection[Any], name: str, size: int) -> list[LoggedEvent]:
        """Insert a numbered event by plain SQL, which may be larger than the library accepts."""
        ((_, seq),) = self._accounts.raised(conn, [name])
        schema = self._accounts.schema
        event = statements.insert(conn, schema, event_type=SYNC, kind=KIND, name=name, seq=seq, size=size)
        return self._noted(conn, [LoggedEvent(event, name, seq)])

    def leap(self, conn: Connection[Any], ids: int) -> None:
        """Use up record ids at once."""
        statements.leap(conn, self._accounts.schema, ids)

    def committed(self, events: Iterable[LoggedEvent]) -> None:
        """Record events whose commit was acknowledged. All must be delivered."""
        with self._lock:
            self._committed.update((one.event, one) for one in events)

    def declined(self, count: int) -> None:
        """Count events that were rolled back on purpose. No handler may get them."""
        with self._lock:
            self.rolled_back += count

    @property
    def count(self) -> int:
        """The number of events whose commit was acknowledged."""
        return len(self._committed)

    def truth(self, conn: Connection[Any]) -> list[LoggedEvent]:
        """Return all committed events: the noted events, and the acknowledged events that should be among them."""
        noted = [LoggedEvent(*row) for row in statements.noted(conn, self._accounts.schema)]
        with self._lock:
            return list((self._committed | {each.event: each for each in noted}).values())


def _event(event_type: str, name: str | None, payload: dict[str, object]) -> Event:
    if name is None:
        return Event(event_type, payload, aggregate_type=KIND)
    return Event(event_type, payload, aggregate_type=KIND, aggregate_id=name)
