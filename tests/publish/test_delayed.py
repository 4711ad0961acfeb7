"""Delayed events, from publish to handler: not before their time, soon after it, passed by later ones."""

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from waiting import eventually

from partbox import Event, Outbox
from partbox.events import DeliveredEvent
from partbox.publish.writing import COPY_FROM_EVENTS

BY_A_TICK = timedelta(seconds=10)
PAST = datetime(2020, 1, 1, tzinfo=UTC)


class Clerk:
    """Notes what is delivered and when, by the clock of the database."""

    def __init__(self, dsn: str, **settings: Any) -> None:
        self.outbox = Outbox(dsn, **settings)
        self.outbox.register(self.note, "T")
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.times: dict[Any, datetime] = {}
        self._clock = psycopg.connect(dsn, autocommit=True)
        self._lock = threading.Lock()

    def note(self, event: DeliveredEvent) -> None:
        with self._lock:
            row = self._clock.execute("select clock_timestamp()").fetchone()
            assert row is not None
            self.times[event.payload] = row[0]

    def publish(self, *events: Event) -> None:
        with self.conn.transaction():
            self.outbox.publish_many(self.conn, events)

    def lateness(self) -> list[timedelta]:
        """How long after its time each delayed event was delivered."""
        rows = self.conn.execute(
            "select (payload #>> '{}')::integer, available_at from partbox.record where available_at is not null"
        ).fetchall()
        return [self.times[number] - available_at for number, available_at in rows]

    def close(self) -> None:
        self.conn.close()
        self._clock.close()


@pytest.fixture
def clerk(dsn: str) -> Iterator[Clerk]:
    clerk = Clerk(dsn)
    yield clerk
    clerk.close()


@pytest.mark.parametrize("size", [5, COPY_FROM_EVENTS], ids=["inserted", "copied"])
def test_delayed_events_are_delivered_not_before_their_time_and_soon_after_it(dsn: str, size: int) -> None:
    """By itself: not at the next tick, when what is due is looked for anyway."""
    tick = BY_A_TICK.total_seconds()
    with closing(Clerk(dsn, heartbeat=tick, lease=6 * tick)) as clerk, clerk.outbox.worker():
        clerk.publish(Event("T", size))
        eventually(lambda: size in clerk.times)  # it owns everything: its start does not count
        clerk.publish(*(Event("T", n, aggregate_id=str(n), deliver_after=0.5 + n % 20 * 0.02) for n in range(size)))
        eventually(lambda: len(clerk.times) == size + 1)
        late = clerk.lateness()
    assert min(late) >= timedelta(0)
    assert statistics.median(late) < BY_A_TICK / 2


def test_a_handler_sees_whether_its_event_was_delayed_however_it_came(clerk: Clerk) -> None:
    """From the log, its time being over before it was read; or parked, until its time came."""
    seen: dict[Any, tuple[bool, datetime | None]] = {}
    large = "x" * 5_000
    clerk.outbox.on("S")(lambda event: seen.update({event.payload["n"]: (event.is_delayed, event.available_at)}))
    clerk.publish(
        Event("S", {"n": 0}),
        Event("S", {"n": 1}, occurred_at=PAST, available_at=PAST),
        Event("S", {"n": 2, "large": large}, occurred_at=PAST, available_at=PAST),
        Event("S", {"n": 3}, deliver_after=0.5),
        Event("S", {"n": 4, "large": large}, deliver_after=0.5),
    )
    with clerk.outbox.worker():
        eventually(lambda: len(seen) == 5)
    rows = clerk.conn.execute("select (payload->>'n')::int, available_at from partbox.record").fetchall()
    assert seen == {number: (number > 0, available_at) for number, available_at in rows}


def test_later_events_of_the_aggregate_pass_a_delayed_one(clerk: Clerk, drain: Callable[[Outbox], object]) -> None:
    clerk.publish(*(Event("T", n, aggregate_id="k", deliver_after=3600 if n == 0 else None) for n in range(10)))
    drain(clerk.outbox)
    assert [*clerk.times] == [*range(1, 10)]
    assert clerk.conn.execute("update partbox.parked set due_at = clock_timestamp()").rowcount == 1
    drain(clerk.outbox)
    assert [*clerk.times] == [*range(1, 10), 0]


def test_an_event_whose_delay_is_over_when_it_is_read_keeps_its_place_in_the_order(
    clerk: Clerk, drain: Callable[[Outbox], object]
) -> None:
    clerk.publish(
        *(Event("T", n, aggregate_id="k", occurred_at=PAST, available_at=PAST if n % 2 else None) for n in range(10))
    )
    drain(clerk.outbox)
    assert [*clerk.times] == [*range(10)]


def test_a_delayed_event_waits_through_a_restart(clerk: Clerk, drain: Callable[[Outbox], object]) -> None:
    clerk.publish(Event("T", 1, aggregate_id="k", deliver_after=3600), Event("T", 2, aggregate_id="k"))
    parked = "select state, due_at = available_at from partbox.parked join partbox.record on id = record_id"
    drain(clerk.outbox)
    assert clerk.conn.execute(parked).fetchall() == [("scheduled", True)]
    clerk.conn.execute("update partbox.parked set due_at = clock_timestamp()")
    drain(clerk.outbox)
    assert [*clerk.times] == [2, 1]
    assert clerk.conn.execute(parked).fetchall() == []
