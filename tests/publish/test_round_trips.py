"""Round trips of a publish, counted in what libpq notes of its messages: the turns from sending to receiving.

In a pipeline answers are read whenever they come; there is waited for those that were asked for, by Sync or Flush.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.pq import Trace
from reading import count

from partbox import Event, Outbox
from partbox.publish.transaction import AnyConnection
from partbox.publish.writing import COPY_FROM_EVENTS

EVENT = Event("OrderPlaced", {"id": 42}, aggregate_id="42", headers={"a": "b"})
FEW = [Event("T", n) for n in range(3)]
MANY = [Event("T", n) for n in range(COPY_FROM_EVENTS)]
LATER = [Event("T", n, deliver_after=timedelta(hours=1)) for n in range(COPY_FROM_EVENTS)]
KEYED = [Event("T", n, idempotency_key=str(n)) for n in range(3)]
PREPARED = 2  # statements that psycopg prepares by the way, each at a round trip: with and without asking


def turns(messages: Sequence[str]) -> int:
    return "".join(message[0] for message in messages).count("FB")


def asked_for(messages: Sequence[str]) -> int:
    return sum(message.split("\t")[2] in ("Sync", "Flush") for message in messages if message[0] == "F")


@contextmanager
def traced(conn: AnyConnection, trips: Callable[[Sequence[str]], int] = turns) -> Iterator[Callable[[], int]]:
    """Yields the number of round trips since the last call."""
    with tempfile.TemporaryFile("w+") as file:

        def since() -> int:
            conn.pgconn.untrace()
            file.seek(0)
            messages = [line.strip() for line in file if line[0] in "FB"]
            file.seek(0)
            file.truncate()
            begin()
            return trips(messages)

        def begin() -> None:
            conn.pgconn.trace(file.fileno())
            conn.pgconn.set_trace_flags(Trace.SUPPRESS_TIMESTAMPS)

        begin()
        try:
            yield since
        finally:
            conn.pgconn.untrace()


@pytest.fixture
def outbox(dsn: str) -> Outbox:
    return Outbox(dsn)


@pytest.fixture
def silent(dsn: str) -> Outbox:
    """One that asks nobody."""
    return Outbox(dsn, bell="off")


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is forgotten at once: every publish asks."""
    monkeypatch.setattr("partbox.protocol.bell.NO_ASK_TIME", 0.0)


@pytest.mark.usefixtures("deaf")
def test_a_publish_costs_one_round_trip_even_the_first_on_a_connection(
    outbox: Outbox, silent: Outbox, dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as app, app.transaction(), traced(app) as trips:
        app.execute("select 1")
        assert trips() == 1
        for each in (outbox, silent):
            each.publish(app, EVENT)
            assert trips() == 1
            each.publish(app, "T", 1, idempotency_key=f"key {each is silent}")
            assert trips() == 1
            each.publish_many(app, FEW)
            assert trips() == 1
        for _ in range(20):
            outbox.publish(app, EVENT)
            silent.publish(app, EVENT)
        assert trips() <= 40 + PREPARED


@pytest.mark.usefixtures("deaf")
def test_a_list_costs_as_many_round_trips_as_its_way_of_writing_needs(outbox: Outbox, silent: Outbox, dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as app, app.transaction(), traced(app) as trips:
        silent.publish_many(app, MANY)
        assert trips() == 2, "for COPY"
        outbox.publish_many(app, MANY)
        assert trips() == 3, "and to ask whether a worker sleeps"
        silent.publish_many(app, LATER)
        assert trips() == 3, "and to read the clock that delays count from"
        silent.publish_many(app, KEYED)
        assert trips() == 2, "with keys that are taken first"


def test_a_publisher_that_has_heard_that_nobody_sleeps_copies_without_asking(
    outbox: Outbox, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    with psycopg.connect(dsn, autocommit=True) as app, app.transaction(), traced(app) as trips:
        outbox.publish(app, EVENT)
        assert trips() == 1
        outbox.publish_many(app, MANY)
        assert trips() == 2


@pytest.mark.usefixtures("deaf")
def test_only_hooks_after_the_end_of_the_transaction_cost_a_round_trip(outbox: Outbox, dsn: str) -> None:
    outbox.before_publish(lambda events: None)
    outbox.after_publish(lambda events: None)
    with psycopg.connect(dsn, autocommit=True) as app:
        with app.transaction(), traced(app) as trips:
            outbox.publish(app, EVENT)
            assert trips() == 1
        outbox.after_commit(lambda events: None)
        with outbox.transaction(app), traced(app) as trips:
            outbox.publish(app, EVENT)
            assert trips() == 2


@pytest.mark.usefixtures("deaf")
async def test_an_asynchronous_publish_costs_one_round_trip(outbox: Outbox, silent: Outbox, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as app, app.transaction():
        with traced(app) as trips:
            for each in (outbox, silent):
                await each.publish_async(app, EVENT)
                assert trips() == 1
                await each.publish_many_async(app, FEW)
                assert trips() == 1
                await each.publish_async(app, "T", 1, idempotency_key=f"key {each is silent}")
                assert trips() == 1


@pytest.mark.usefixtures("deaf")
@pytest.mark.parametrize("autocommit", [True, False])
def test_publishing_in_a_pipeline_waits_for_no_answer(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any], autocommit: bool
) -> None:
    with psycopg.connect(dsn, autocommit=autocommit) as app, traced(app, asked_for) as trips:
        with app.pipeline(), app.transaction() if autocommit else nullcontext():
            app.execute("select 1")
            trips()  # psycopg waits for the answer to its BEGIN
            for _ in range(10):
                outbox.publish(app, EVENT)
            outbox.publish_many(app, FEW)
            outbox.publish_many(app, MANY)
            assert trips() == 0
        assert trips() >= 1
        app.commit()
    assert count(conn) == 13 + COPY_FROM_EVENTS


@pytest.mark.usefixtures("deaf")
async def test_publishing_in_an_asynchronous_pipeline_waits_for_no_answer(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as app:
        with traced(app, asked_for) as trips:
            async with app.pipeline(), app.transaction():
                trips()
                for _ in range(10):
                    await outbox.publish_async(app, EVENT)
                await outbox.publish_many_async(app, MANY)
                assert trips() == 0
    assert count(conn) == 10 + COPY_FROM_EVENTS


def test_publishing_in_a_pipeline_whose_transaction_was_begun_by_hand_waits_for_the_server(
    outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]
) -> None:
    with psycopg.connect(dsn, autocommit=True) as app, traced(app, asked_for) as trips, app.pipeline():
        app.execute("begin")
        outbox.publish(app, EVENT)
        assert trips() >= 1
        app.execute("commit")
    assert count(conn) == 1


def test_a_failure_in_a_pipeline_leaves_no_event(outbox: Outbox, dsn: str, conn: psycopg.Connection[Any]) -> None:
    with psycopg.connect(dsn, autocommit=True) as app:

        def publish() -> None:
            with app.pipeline(), app.transaction():
                app.execute("select 1 / 0")
                outbox.publish(app, EVENT)
                outbox.publish_many(app, FEW)

        with pytest.raises(psycopg.errors.DivisionByZero):
            publish()
        assert count(conn) == 0
        with app.transaction():
            outbox.publish(app, EVENT)
    assert count(conn) == 1
