"""Publishing many events at once and one at a time, compared with the raw statements."""

import time
from collections.abc import Sequence, Set
from typing import Any
from uuid import uuid4

import orjson
import psycopg

from partbox.events import Event
from partbox.protocol.hashing import partition_of
from partbox_lab.bench import baselines
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.rounds import compared, in_turn

MANY = Budget("publish-many", "publish_many(10,000) vs raw COPY of the same rows", Direction.AT_LEAST, 0.6)
ONE = Budget("publish-one", "publish in its own transaction vs the bare INSERT", Direction.AT_LEAST, 0.8)
PAGE = 10_000  # events per publish_many
BURST = 20  # single events before the other side's turn
NOTE = "x" * 150


def _events(count: int) -> list[Event]:
    return [
        Event("OrderPlaced", {"number": n, "note": NOTE}, aggregate_type="Order", aggregate_id=f"order-{n % 5_000}")
        for n in range(count)
    ]


def _rows(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """Return the columns that COPY takes."""
    return [
        (
            partition_of(str(each.aggregate_id)),
            each.event_id,
            each.event_type,
            each.aggregate_type,
            each.aggregate_id,
            None,
            orjson.dumps(each.payload).decode(),
            None,
            None,
            None,
        )
        for each in events
    ]


class _Publisher:
    """Publishing by partbox, in events per second."""

    def __init__(self, database: BenchDatabase, conn: psycopg.Connection[Any]) -> None:
        self._outbox = database.outbox()
        self._conn = conn

    def many(self) -> float:
        events = _events(PAGE)
        began = time.perf_counter()
        with self._conn.transaction():
            self._outbox.publish_many(self._conn, events)
        return PAGE / (time.perf_counter() - began)

    def one_by_one(self) -> float:
        conn, outbox, began = self._conn, self._outbox, time.perf_counter()
        for n in range(BURST):
            payload, key = {"number": n, "note": NOTE}, f"order-{n}"
            with conn.transaction():
                outbox.publish(conn, "OrderPlaced", payload, aggregate_type="Order", aggregate_id=key)
        return BURST / (time.perf_counter() - began)


class _Statements:
    """The raw statements for the same events. Everything is prepared before the clock starts."""

    def __init__(self, database: BenchDatabase, conn: psycopg.Connection[Any]) -> None:
        self._database = database
        self._conn = conn

    def many(self) -> float:
        self._database.check()
        return baselines.copying(self._database, self._conn, _rows(_events(PAGE)))

    def one_by_one(self) -> float:
        self._database.check()
        payloads = [orjson.dumps({"number": n, "note": NOTE}).decode() for n in range(BURST)]
        rows = [(partition_of(f"order-{n}"), uuid4(), f"order-{n}", payload) for n, payload in enumerate(payloads)]
        return baselines.inserting(self._database, self._conn, rows)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    database.fresh()
    with psycopg.connect(database.dsn, autocommit=True) as conn:
        ours, raw = _Publisher(database, conn), _Statements(database, conn)
        if MANY.name in wanted:
            published, copied = in_turn(database.sizes.pages, ours.many, raw.many)
            yield compared(MANY.name, ("publish_many", published), ("COPY", copied))
        if ONE.name in wanted:
            published, inserted = in_turn(database.sizes.singles // BURST, ours.one_by_one, raw.one_by_one)
            yield compared(ONE.name, ("publish", published), ("INSERT", inserted))


GROUP = LineGroup((MANY, ONE), _measure)
