"""A shop that cancels delayed events, with two subscriptions."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from partbox import Outbox

HOUR = timedelta(hours=1)
SOON = timedelta(seconds=3)  # more than it takes to cancel it
DUE = datetime(2020, 1, 1, tzinfo=UTC)


class Shop:
    """An outbox whose handlers of two subscriptions note what they ran."""

    def __init__(self, dsn: str, conn: Connection[Any], drain: Callable[..., Any]) -> None:
        self.outbox, self.conn, self._drain = Outbox(dsn), conn, drain
        self.outbox.subscriptions.create("audit", start="beginning")
        self.ran: dict[str, list[Any]] = {"default": [], "audit": []}
        for name, ran in self.ran.items():
            self.outbox.on("*", subscription=name)(lambda event, ran=ran: ran.append(event.payload))

    def publish(self, payload: Any, deliver_after: timedelta | None = HOUR, **fields: Any) -> UUID:
        delay: Any = {} if deliver_after is None else {"deliver_after": deliver_after}
        with self.conn.transaction():
            event_id = self.outbox.publish(self.conn, "Reminder", payload, **delay, **fields)
        assert event_id is not None
        return event_id

    def cancel(self, event: Any = None, **named: Any) -> bool:
        with self.conn.transaction():
            return self.outbox.cancel(self.conn, event, **named)

    def drain(self) -> dict[str, list[Any]]:
        """Deliver what is due in both subscriptions; what ran in each so far."""
        for _ in range(2):  # what a poll finds in doubt is parked by the first one
            for name in self.ran:
                self._drain(self.outbox, name)
            self.conn.execute("select pg_sleep(0.002)")
        return self.ran

    def let_time_pass(self, where: str = "true") -> None:
        """All delayed events are due from here: their times are moved, for no clock can be."""
        self.conn.execute("update partbox.record set available_at = clock_timestamp() where available_at is not null")
        self.conn.execute("update partbox.parked set due_at = clock_timestamp() where state = 'scheduled'")

    def wait_for(self, event_id: UUID) -> None:
        """Until its time has come, by the database's clock."""
        self.conn.execute(
            "select pg_sleep(greatest(0, extract(epoch from available_at - clock_timestamp()) + 0.001))"
            " from partbox.record where event_id = %s",
            [event_id],
        )

    def states(self) -> dict[str, list[str]]:
        found = self.conn.execute("select subscription, state from partbox.parked order by record_id").fetchall()
        return {name: [state for subscription, state in found if subscription == name] for name in self.ran}


@pytest.fixture
def shop(dsn: str, conn: Connection[Any], drain: Callable[..., Any]) -> Shop:
    return Shop(dsn, conn, drain)


@pytest.fixture
def app(dsn: str) -> Iterator[Connection[Any]]:
    """Another transaction of the application."""
    with psycopg.connect(dsn) as app:
        yield app
