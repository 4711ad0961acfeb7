"""A small outbox under test: publishes numbered events, keeps what handlers saw, moves due times."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
from waiting import eventually

from partbox import Event, Outbox
from partbox.events import DeliveredEvent
from partbox.testing.drain import Drainer
from partbox.testing.outcomes import Drained
from partbox.testing.sessions import Sessions


class Desk:
    """An outbox on a test's database, and what its handlers saw, in the order of their starts.

    `sessions`: connections that drains keep from test to test.
    """

    def __init__(self, dsn: str, sessions: Sessions | None = None, **settings: Any) -> None:
        self.outbox = Outbox(dsn, **settings)
        self._drainer = Drainer(self.outbox, dsn, sessions)
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.seen: list[tuple[str | None, int, int]] = []
        self._lock = threading.Lock()

    def note(self, event: DeliveredEvent) -> None:
        """Keep (aggregate id, number, attempt) of an event. A handler for those that need nothing else."""
        with self._lock:
            self.seen.append((event.aggregate_id, event.payload["number"], event.attempt))

    def publish(self, key: str | None, *numbers: int, event_type: str = "Counted", **fields: Any) -> None:
        own = {} if key is None else {"aggregate_id": key}
        with self.conn.transaction():
            self.outbox.publish_many(
                self.conn,
                [Event(event_type, {"number": number}, aggregate_type="Key", **own, **fields) for number in numbers],
            )

    def drain(self, subscription: str = "default") -> Drained:
        """Deliver what is due, event by event: the parts of a worker that ship, without its threads and waits."""
        return self._drainer.drain(subscription)

    async def drain_async(self, subscription: str = "default") -> Drained:
        return await self._drainer.drain_async(subscription)

    def drain_again(self) -> Drained:
        """Deliver what waits too."""
        self.make_due()
        return self.drain()

    def close(self) -> None:
        self._drainer.close()
        self.conn.close()

    def numbers(self, key: str | None = "k") -> list[int]:
        return [number for aggregate, number, _ in self.seen if aggregate == key]

    def parked(self) -> list[tuple[int, str, int, bool]]:
        """(number, state, attempts, blocks) of every parked row, in id order."""
        return self.conn.execute(
            """select (r.payload ->> 'number')::integer, k.state, k.attempts, k.blocks
                 from partbox.parked k join partbox.record r on r.id = k.record_id order by k.record_id"""
        ).fetchall()

    def blocked_keys(self) -> int:
        row = self.conn.execute("select count(distinct aggregate_id) from partbox.parked where blocks").fetchone()
        assert row is not None
        return int(row[0])

    def states(self) -> dict[int, str]:
        return {number: state for number, state, _, _ in self.parked()}

    def make_due(self) -> None:
        """Move every due time to now, as a command would: the owners look again."""
        with self.conn.transaction():  # the lock order of every writer: partition rows, in order, before parked ones
            self.conn.execute("select from partbox.partition order by subscription, partition for no key update")
            self.conn.execute("update partbox.parked set due_at = clock_timestamp() where due_at is not null")
            self.conn.execute("update partbox.partition set parked_version = parked_version + 1")

    def eventually(self, check: Callable[[], Any]) -> Any:
        """Wait for `check()`; for all events to be done as long as some become done, however busy the machine is."""
        return eventually(check, moves=self.done if check == self.all_done else None)

    def done(self) -> int:
        """The number of events that are done, by the database's word."""
        row = self.conn.execute("select count(*) from partbox.record_status where status = 'done'").fetchone()
        assert row is not None
        return int(row[0])

    def all_done(self) -> bool:
        """Everything published is done, by the database's word."""
        row = self.conn.execute("select count(*) from partbox.record_status where status <> 'done'").fetchone()
        return row == (0,)
