"""An outbox like an application's, and a kit over it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from partbox import Dead, Fixed, Ignore, Outbox, RetryAfter, RetryAfterError
from partbox.events import DeliveredEvent
from partbox.testing import Kit


@dataclass
class Shop:
    """An application: its outbox, which is nowhere yet, and what its handlers have seen."""

    outbox: Outbox = field(default_factory=lambda: Outbox("postgresql:///nowhere", retry=Fixed(60), max_attempts=3))
    seen: list[Any] = field(default_factory=list)

    def note(self, event: DeliveredEvent) -> None:
        self.seen.append(event.payload)


@pytest.fixture
def shop() -> Shop:
    """Every kind of handler, each for a type of its own."""
    shop = Shop()
    on = shop.outbox.on

    @on("Noted")
    def noted(event: DeliveredEvent) -> None:
        shop.note(event)

    @on("Awaited")
    async def awaited(event: DeliveredEvent) -> None:
        shop.note(event)

    @on("Failing")
    def failing(event: DeliveredEvent) -> None:
        shop.note(event)
        raise ValueError(f"no {event.payload}")

    @on("Later")
    def later(event: DeliveredEvent) -> RetryAfter | None:
        shop.note(event)
        return RetryAfter(0) if event.payload else None

    @on("SoonAgain")
    def soon_again(event: DeliveredEvent) -> None:
        shop.note(event)
        raise RetryAfterError(0)

    @on("Hopeless")
    def hopeless(event: DeliveredEvent) -> Dead:
        return Dead("never")

    @on("Harmless", on_error=lambda event, error, attempt: Ignore())
    def harmless(event: DeliveredEvent) -> None:
        raise LookupError("gone")

    @on("Effected", transactional=True)
    def effected(event: DeliveredEvent, conn: Any) -> None:
        conn.execute("create table if not exists effect (payload json)")
        conn.execute("insert into effect values (%s)", [str(event.payload)])
        shop.note(event)
        if event.payload == 13:
            raise ValueError("13")

    @shop.outbox.on_batch("Listed")
    def listed(events: list[DeliveredEvent]) -> None:
        shop.seen.append([event.payload for event in events])

    @on("Chained")
    def chained(event: DeliveredEvent) -> None:
        with shop.outbox.transaction() as conn:
            shop.outbox.publish(conn, "Noted", event.payload, aggregate_id="chain")

    return shop


@pytest.fixture
def kit(shop: Shop, dsn: str) -> Iterator[Kit]:
    with Kit(shop.outbox, dsn) as kit:
        yield kit
