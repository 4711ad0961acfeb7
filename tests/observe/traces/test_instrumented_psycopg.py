"""An application that traces psycopg sees its own statements, and a worker's only if it asks for them."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from opentelemetry.instrumentation.psycopg import PsycopgInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from waiting import eventually

from partbox import Outbox
from partbox.db import connect
from partbox.observe.tracing import Tracing


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Gives what was traced so far."""
    monkeypatch.setattr(connect, "is_instrumented", False)
    for place in (psycopg, psycopg.Connection, psycopg.AsyncConnection):  # it does not put back class methods
        monkeypatch.setattr(place, "connect", vars(place)["connect"])
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = PsycopgInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield lambda: [str((span.attributes or {}).get("db.statement")) for span in exporter.get_finished_spans()]
    instrumentor.uninstrument()


def deliver(dsn: str, outbox: Outbox) -> None:
    """Deliver one event, in a worker that also beats, plans, saves and leaves."""
    seen: list[Any] = []
    outbox.on("Placed")(seen.append)
    with psycopg.connect(dsn) as conn, outbox.worker() as worker:
        conn.execute("select 'of the application'")
        outbox.publish(conn, "Placed", 1)
        conn.commit()
        eventually(lambda: len(seen) == 1)
        assert worker.wait_until_empty(120)


def test_the_statements_of_a_worker_are_no_spans(dsn: str, statements: Any) -> None:
    deliver(dsn, Outbox(dsn))
    assert set(statements()) == {"select 'of the application'"}


def test_the_statements_of_a_worker_are_traced_if_configured(dsn: str, statements: Any) -> None:
    outbox = Outbox(dsn)
    outbox.observe(Tracing(statements=True))
    deliver(dsn, outbox)
    assert any("heartbeat" in each for each in statements())


@pytest.mark.parametrize("asked", [False, True])
def test_the_statements_of_a_transactional_handler_are_traced_only_if_configured(
    dsn: str, conn: psycopg.Connection[Any], statements: Any, asked: bool
) -> None:
    conn.execute("create table effect (id int)")
    outbox = Outbox(dsn)
    if asked:
        outbox.observe(Tracing(statements=True))
    with outbox.transaction() as tx:
        outbox.publish(tx, "Counted", 1)
        tx.execute("select 'of the block'")

    @outbox.on("Counted", transactional=True)
    def count(event: Any, conn: psycopg.Connection[Any]) -> None:
        conn.execute("insert into effect values (1)")

    assert outbox.drain(timeout=30)
    traced = statements()
    assert "select 'of the block'" in traced  # on a connection that is the application's
    assert ("insert into effect values (1)" in traced) is asked
