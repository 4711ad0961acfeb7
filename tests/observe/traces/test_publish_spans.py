"""Spans of publishing, as an exporter sees them."""

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from spans import CANARY, errors, linked, told

from partbox import Event


def test_a_publish_is_a_child_of_what_the_application_does_and_travels_in_the_headers(traced):
    with traced.provider.get_tracer("shop").start_as_current_span("checkout") as checkout:
        traced.place(headers={"tone": "loud"}, aggregate_type="Order")

    span = traced.one("publish")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent.span_id == checkout.get_span_context().span_id
    (headers,) = traced.headers()
    assert headers["tone"] == "loud"
    assert headers["traceparent"].startswith(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-")
    (event_id,) = traced.conn.execute("select event_id from partbox.record").fetchone()
    assert span.name == "publish OrderPlaced"
    assert told(span) == {
        "messaging.system": "partbox",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "OrderPlaced",
        "messaging.message.id": str(event_id),
        "partbox.event_type": "OrderPlaced",
        "partbox.aggregate_type": "Order",
    }


def test_a_batch_is_one_span_whose_context_all_its_events_carry(traced):
    traced.publish(*range(20), event_type="Counted")

    assert told(traced.one("publish"))["messaging.batch.message_count"] == 20
    assert len({headers["traceparent"] for headers in traced.headers()}) == 1


def test_a_header_that_the_application_gives_wins(traced):
    mine = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    state = trace.TraceState([("vendor", "theirs")])
    above = trace.NonRecordingSpan(trace.SpanContext(1, 2, True, trace.TraceFlags(1), state))
    with trace.use_span(above):
        traced.place(headers={"traceparent": mine})
        traced.place()

    own, other = traced.headers()
    assert own == {"traceparent": mine}  # nor a state that is not its parent's
    assert other["tracestate"] == "vendor=theirs"


async def test_an_asynchronous_publish_has_its_span_too_and_leaves_the_task_as_it_was(traced, dsn):
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        await traced.outbox.publish_async(conn, "OrderPlaced", {})
        await traced.outbox.publish_many_async(conn, [Event("OrderPlaced", {}), Event("OrderPaid", {})])

    assert trace.get_current_span() is trace.INVALID_SPAN
    assert [span.name for span in traced.named("publish")] == ["publish OrderPlaced", "publish"]
    assert [told(span)["partbox.event_type"] for span in traced.named("publish")] == [
        "OrderPlaced",
        ("OrderPaid", "OrderPlaced"),
    ]
    assert all("traceparent" in headers for headers in traced.headers())


def test_an_event_that_a_hook_suppresses_leaves_no_span(traced):
    traced.outbox.before_publish(lambda events: [])

    assert traced.place() is None
    assert traced.spans == []


def test_a_publish_that_the_database_refuses_shows_its_error_but_not_the_row(traced):
    traced.conn.execute("alter table partbox.record add constraint modest check (event_type <> 'Immodest')")

    with pytest.raises(psycopg.errors.CheckViolation, match=CANARY):  # it quotes the row
        traced.place({"secret": CANARY}, "Immodest")

    span = traced.one("publish")
    assert span.status.status_code is StatusCode.ERROR
    assert errors(span) == ["psycopg.errors.CheckViolation"]
    assert told(span)["error.type"] == "psycopg.errors.CheckViolation"
    assert "modest" in span.status.description
    assert CANARY not in span.to_json()


def test_a_publish_that_is_rolled_back_leaves_a_publish_span_that_no_handler_links_to(traced):
    traced.outbox.on("*")(lambda event: None)
    with traced.conn.transaction(force_rollback=True):
        traced.publish(1)
    traced.publish(2)

    traced.deliver()

    rolled_back, committed = traced.named("publish")
    assert rolled_back.status.status_code is StatusCode.UNSET  # it was written: how a transaction ends it cannot know
    assert linked(traced.one("handle"), "publish") == [committed.context.span_id]
