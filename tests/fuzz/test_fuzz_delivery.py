"""What is valid survives: whatever way an event is published, its handler gets it unchanged."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_size import examples
from variants import named

from partbox import Event, Outbox, partition_of
from partbox.codecs import Codecs
from partbox.events import DeliveredEvent
from partbox.events.checks import MAX_HEADERS
from partbox.publish.writing import COPY_FROM_EVENTS
from partbox.testing.strategies import events, json_values

REAL = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
Seen = dict[str, Any]
Way = Callable[[Outbox, str, list[Event]], list[Any]]

TYPED = events(payload=st.binary(), content_type=st.sampled_from(["image/png", "text/plain; é", "\u202ex"]))
MIXED = st.lists(events() | TYPED, min_size=1, max_size=6)
FULL = {"h" * 1_000: "é" * ((MAX_HEADERS - 1_000) // 2)}
SQL = """
    select partbox.publish(%(event_type)s, %(payload)s::json, %(aggregate_type)s,
                           coalesce(%(aggregate_id)s, '__NOT_GIVEN__'), %(tenant_id)s, %(headers)s::json,
                           idempotency_key => %(idempotency_key)s)
"""


@contextmanager
def application(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn) as conn, conn.transaction():
        yield conn


def one_by_one(outbox: Outbox, dsn: str, events: list[Event]) -> list[Any]:
    with application(dsn) as conn:
        return [outbox.publish(conn, event) for event in events]


def as_a_list(outbox: Outbox, dsn: str, events: list[Event]) -> list[Any]:
    with application(dsn) as conn:
        return outbox.publish_many(conn, events)


def in_a_pipeline(outbox: Outbox, dsn: str, events: list[Event]) -> list[Any]:
    with application(dsn) as conn, conn.pipeline():
        return outbox.publish_many(conn, events)


def by_copy(outbox: Outbox, dsn: str, events: list[Event]) -> list[Any]:
    """Enough of them, which bring no time and no key, so that COPY takes both its forms."""
    with application(dsn) as conn:
        return outbox.publish_many(conn, events + [Event("T", None)] * COPY_FROM_EVENTS)


def by_copy_without_times(outbox: Outbox, dsn: str, events: list[Event]) -> list[Any]:
    """`occurred_at` apart, which decides the form."""
    return by_copy(outbox, dsn, [event for event in events if event.occurred_at is None])


def awaited(outbox: Outbox, dsn: str, events: list[Event]) -> list[Any]:
    async def publish() -> list[Any]:
        async with await psycopg.AsyncConnection.connect(dsn) as conn, conn.transaction():
            return [await outbox.publish_async(conn, event) for event in events]

    return asyncio.run(publish())


def awaited_as_a_list(outbox: Outbox, dsn: str, events: list[Event]) -> list[Any]:
    async def publish() -> list[Any]:
        async with await psycopg.AsyncConnection.connect(dsn) as conn, conn.transaction():
            return await outbox.publish_many_async(conn, events + [Event("T", None)] * 8)

    return asyncio.run(publish())


WAYS: list[Way] = [
    one_by_one, as_a_list, in_a_pipeline, by_copy, by_copy_without_times, awaited, awaited_as_a_list,
]  # fmt: skip


def seen(event: DeliveredEvent) -> Seen:
    """All that a handler can ask for."""
    names = ("event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "headers", "payload")
    more = ("content_type", "idempotency_key", "occurred_at", "partition")
    return {name: getattr(event, name) for name in names + more}


def asked(event: Event) -> Seen:
    """What of it must come out of this."""
    names = ("event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "headers", "payload")
    kept = {name: getattr(event, name) for name in (*names, "content_type", "idempotency_key")}
    key = str(event.event_id) if event.aggregate_id is None else event.aggregate_id
    kept["partition"] = partition_of(key)
    kept["content_type"] = event.content_type or ("application/octet-stream" if type(event.payload) is bytes else None)
    return kept | ({} if event.occurred_at is None else {"occurred_at": event.occurred_at})


class Consumer:
    """An embedded worker, and what its handler got."""

    def __init__(self, dsn: str) -> None:
        self.outbox = Outbox(dsn)
        self.got: list[tuple[int, Seen]] = []
        self.outbox.register(lambda event: self.got.append((event.id, seen(event))), "*")

    def take(self, worker: Any) -> list[Seen]:
        """What came since, in the order of the log."""
        assert worker.wait_until_empty(120)
        got, self.got = sorted(self.got, key=lambda each: each[0]), []
        return [each for _, each in got]


@pytest.fixture
def consumer(dsn: str) -> Consumer:
    return Consumer(dsn)


def test_every_event_reaches_its_handler_unchanged(dsn: str, consumer: Consumer) -> None:
    with consumer.outbox.worker() as worker:
        for way in WAYS:
            with named(way.__name__):
                check_way(dsn, consumer, worker, way)


def check_way(dsn: str, consumer: Consumer, worker: Any, way: Way) -> None:
    @settings(REAL, max_examples=examples(12))
    @given(MIXED)
    def publish_and_deliver(events: list[Event]) -> None:
        ids = way(consumer.outbox, dsn, events)
        given = [event for event in events if way is not by_copy_without_times or event.occurred_at is None]
        published = [event for event, id in zip(given, ids, strict=False) if id is not None]
        got = [each for each in consumer.take(worker) if each["event_type"] != "T" or each["payload"] is not None]
        wanted = [asked(event) for event in published if event.event_type != "T" or event.payload is not None]
        assert [{name: each[name] for name in want} for each, want in zip(got, wanted, strict=True)] == wanted

    publish_and_deliver()


def test_an_event_of_the_largest_allowed_size_reaches_its_handler_unchanged(dsn: str, consumer: Consumer) -> None:
    name, long = "\u202e" * 255, "\u202e\n" * 2_048
    fields = {"aggregate_type": name, "aggregate_id": long, "tenant_id": long, "headers": FULL}
    published = {}
    for number, way in enumerate(WAYS):
        key = chr(0x1F4A5 + number) * 255
        event = Event(name, "x" * (1_048_576 - 2), idempotency_key=key, **fields)
        way(consumer.outbox, dsn, [event])
        published[way.__name__] = event
    with consumer.outbox.worker() as worker:
        got = [each for each in consumer.take(worker) if each["event_type"] != "T"]
    for (way_name, event), came in zip(published.items(), got, strict=True):
        assert {field: came[field] for field in asked(event)} == asked(event), way_name


def test_an_event_published_by_sql_reaches_its_handler_unchanged(dsn: str, consumer: Consumer) -> None:
    codecs = Codecs()
    none = st.none()
    with consumer.outbox.worker() as worker, psycopg.connect(dsn, autocommit=True) as conn:

        @settings(REAL, max_examples=examples(25))
        @given(st.lists(events(payload=json_values(), event_id=none, occurred_at=none), min_size=1, max_size=6))
        def publish_and_deliver(events: list[Event]) -> None:
            wanted = []
            for event in events:
                given = {name: getattr(event, name) for name in event.__slots__}
                given["payload"] = codecs.encode(event.payload).text
                given["headers"] = codecs.encode(dict(event.headers)).text
                ((event_id,),) = conn.execute(SQL, given).fetchall()
                if event_id is not None:
                    key = str(event_id) if event.aggregate_id is None else event.aggregate_id
                    wanted.append(asked(event) | {"event_id": event_id, "partition": partition_of(key)})
            got = consumer.take(worker)
            assert [{name: each[name] for name in want} for each, want in zip(got, wanted, strict=True)] == wanted

        publish_and_deliver()


@pytest.mark.parametrize("column", ["event_type", "aggregate_type", "aggregate_id", "tenant_id", "idempotency_key"])
def test_a_nul_character_published_by_sql_is_refused_by_the_database(
    conn: psycopg.Connection[Any], column: str
) -> None:
    given = dict.fromkeys(("aggregate_id", "tenant_id", "headers", "idempotency_key"))
    given |= {"event_type": "T", "payload": "1", "aggregate_type": "A", column: "a\0b"}
    with pytest.raises(psycopg.DataError, match="NUL"):
        conn.execute(SQL, given)
