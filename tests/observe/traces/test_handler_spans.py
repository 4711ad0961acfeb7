"""Spans of handlers and polls, of real workers, as an exporter sees them."""

import asyncio
from contextlib import nullcontext

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from spans import CANARY, errors, linked, told
from waiting import eventually

from partbox import Dead, RetryAfter


def test_a_handler_runs_in_a_span_that_links_to_its_publish_and_its_poll(traced):
    current = []
    traced.outbox.on("Counted")(lambda event: current.append(trace.get_current_span().get_span_context().span_id))
    traced.publish(1, key=CANARY, tenant_id=CANARY)

    traced.deliver()

    span, poll = traced.one("handle"), traced.one("poll")
    assert current == [span.context.span_id]
    assert (span.name, poll.name) == ("handle Counted", "poll")
    assert span.parent is None
    assert span.kind is SpanKind.CONSUMER
    assert linked(span, "publish") == [traced.one("publish").context.span_id]
    assert linked(span, "poll") == [poll.context.span_id]
    row = traced.conn.execute("select r.event_id, r.partition, p.epoch from partbox.record r, partbox.partition p "
                              "where p.subscription = 'default' and p.partition = r.partition").fetchone()  # fmt: skip
    handler = told(span).pop("partbox.handler")
    assert "lambda" in handler
    assert told(span) == {
        "messaging.system": "partbox",
        "messaging.operation.name": "handle",
        "messaging.operation.type": "process",
        "messaging.destination.name": "Counted",
        "messaging.destination.subscription.name": "default",
        "messaging.destination.partition.id": str(row[1]),
        "messaging.message.id": str(row[0]),
        "partbox.event_type": "Counted",
        "partbox.aggregate_type": "Key",
        "partbox.handler": handler,
        "partbox.attempt": 1,
        "partbox.epoch": row[2],
        "partbox.outcome": "done",
    }
    assert told(poll) == {
        "messaging.system": "partbox",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.subscription.name": "default",
        "messaging.batch.message_count": 1,
        "batch.size": 1,
        "success.count": 1,
        "failure.count": 0,
    }
    assert poll.start_time <= span.start_time <= span.end_time <= poll.end_time
    assert not [span.to_json() for span in traced.spans if CANARY in span.to_json()]


def test_an_async_handler_has_the_span_in_its_task(traced):
    current = []

    @traced.outbox.on("Counted")
    async def handle(event):
        await asyncio.sleep(0)
        current.append((event.payload["n"], trace.get_current_span().get_span_context().span_id))

    traced.publish(1, 2, 3)
    traced.deliver()

    assert sorted(number for number, _ in current) == [1, 2, 3]
    assert {span_id for _, span_id in current} == {span.context.span_id for span in traced.named("handle")}
    assert {told(span)["partbox.outcome"] for span in traced.named("handle")} == {"done"}


def test_a_batch_handler_has_one_span_and_its_outcomes_are_counted_one_by_one(traced):
    sizes = []

    @traced.outbox.on_batch("Counted", max_attempts=1)
    def handle(events):
        sizes.append(len(events))
        return [ValueError("odd") if event.payload["n"] % 2 else None for event in events]

    for number in range(4):
        traced.publish(number)
    traced.deliver()

    spans = traced.named("handle")
    counts = [told(span).get("messaging.batch.message_count", 1) for span in spans]
    assert sorted(counts) == sorted(sizes)  # they may end in another order than they began in
    assert sum(len(linked(span, "publish")) for span in spans) == 4
    assert [told(span)["partbox.outcome"] for span in spans if told(span)["partbox.outcome"] != "done"] != []
    assert sum(told(poll)["success.count"] for poll in traced.named("poll")) == 2
    assert sum(told(poll)["failure.count"] for poll in traced.named("poll")) == 2


def test_a_transactional_handler_has_its_span(traced):
    traced.outbox.on("Counted", transactional=True)(lambda event, conn: conn.execute("select 1") and None)
    traced.publish(1, 2)

    traced.deliver()

    assert [told(span)["partbox.outcome"] for span in traced.named("handle")] == ["done", "done"]
    assert sum(told(poll)["success.count"] for poll in traced.named("poll")) == 2


def test_a_handler_call_that_is_repeated_before_its_outcome_leaves_a_span_without_outcome(traced):
    tracing = traced.outbox.handlers.observers[0]
    traced.outbox.register(lambda event: None, "Counted")
    seen = []
    traced.outbox.intercept(lambda event: (seen.append(event), nullcontext())[1])
    traced.publish(1, key="k")
    with traced.outbox.worker():
        eventually(lambda: traced.named("handle"))
    (event,) = seen
    traced.exporter.clear()
    for _ in range(2):
        with tracing.handling([event], "h"):
            pass
    tracing.settled(event, "h", None)
    assert [span.attributes.get("partbox.outcome") for span in traced.named("handle")] == [None, "done"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_failure_shows_its_exception_and_each_attempt_is_a_span(traced, kind):
    def fail(event):
        raise ValueError(f"attempt {event.attempt}")

    async def fail_async(event):
        fail(event)

    traced.outbox.on("Counted", max_attempts=2, retry="fixed:10ms")(fail if kind == "sync" else fail_async)
    traced.publish(1)

    traced.deliver()

    first, second = traced.named("handle")
    assert [told(span)["partbox.attempt"] for span in (first, second)] == [1, 2]
    assert [told(span)["partbox.outcome"] for span in (first, second)] == ["retrying", "dead"]
    assert [errors(span) for span in (first, second)] == [["ValueError"], ["ValueError"]]
    assert [told(span)["error.type"] for span in (first, second)] == ["ValueError", "ValueError"]
    assert {span.status.status_code for span in (first, second)} == {StatusCode.ERROR}
    poll = traced.one("poll")  # a retry is not read from the log again
    assert (told(poll)["success.count"], told(poll)["failure.count"]) == (0, 1)
    assert linked(second, "publish") == linked(first, "publish") != []


def test_a_returned_dead_is_an_error_and_a_returned_retry_after_is_not(traced):
    asked = []

    @traced.outbox.on("Hopeless")
    def give_up(event):
        return Dead("nobody wants it")

    @traced.outbox.on("Early")
    def later(event):
        asked.append(event)
        return RetryAfter(0.01) if len(asked) == 1 else None

    traced.publish(1, event_type="Hopeless")
    traced.publish(2, event_type="Early")
    traced.deliver()

    spans = {(told(span)["partbox.event_type"], told(span)["partbox.outcome"]): span for span in traced.named("handle")}
    assert set(spans) == {("Hopeless", "dead"), ("Early", "deferred"), ("Early", "done")}
    dead = spans["Hopeless", "dead"]
    assert (dead.status.status_code, dead.status.description) == (StatusCode.ERROR, "nobody wants it")
    assert told(dead)["error.type"] == "dead"
    assert "error.type" not in told(spans["Early", "deferred"])
    assert spans["Early", "deferred"].status.status_code is StatusCode.UNSET
    assert sum(told(poll)["success.count"] for poll in traced.named("poll")) == 0
    assert sum(told(poll)["failure.count"] for poll in traced.named("poll")) == 1


def test_a_handler_over_its_time_is_an_error(traced):
    @traced.outbox.on("Counted", timeout=0.05, max_attempts=1)
    async def hang(event):
        await asyncio.Event().wait()

    traced.publish(1)
    traced.deliver()

    span = traced.one("handle")
    assert span.status.status_code is StatusCode.ERROR
    assert told(span)["partbox.outcome"] == "dead"


def test_polls_that_bring_nothing_leave_no_span(traced):
    traced.outbox.on("*")(lambda event: None)

    with traced.outbox.worker() as worker:
        assert worker.wait_until_empty(120)
        eventually(
            lambda: (
                traced.conn.execute("select count(*) from partbox.partition where owner is not null").fetchone()
                == (256,)
            )
        )
    traced.publish(1)
    traced.deliver()

    assert [told(poll)["batch.size"] for poll in traced.named("poll")] == [1]


def test_events_held_behind_a_failure_are_counted_in_their_poll_when_they_are_done(traced):
    """Three of one key: the first fails, the others are held until it is dead."""

    @traced.outbox.on("Counted", max_attempts=2, retry="fixed:10ms")
    def handle(event):
        if event.payload["n"] == 1:
            raise ValueError("no")

    traced.publish(1, 2, 3, key="k")
    with traced.outbox.worker() as worker:
        eventually(lambda: len(traced.named("handle")) == 4)
        assert worker.wait_until_empty(120)

    (poll,) = traced.named("poll")
    counts = told(poll)
    assert counts["batch.size"] == 3
    assert counts["failure.count"] == 1
    assert counts["success.count"] + counts.get("open.count", 0) == 2


def test_headers_that_partbox_did_not_write_only_cost_the_link(traced):
    traced.outbox.on("*")(lambda event: None)
    for headers in ('["no", "object"]', '{"traceparent": "nonsense"}', '{"traceparent": 4}'):
        traced.conn.execute(
            "insert into partbox.record (partition, event_id, event_type, payload, headers)"
            " values (1, gen_random_uuid(), 'Foreign', '{}', %s)",
            [headers],
        )
    traced.deliver()

    assert [linked(span, "publish") for span in traced.named("handle")] == [[], [], []]
