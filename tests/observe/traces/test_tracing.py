"""Spans as an exporter sees them, of real publishes and real workers."""

import asyncio
import json
import sys
from contextlib import nullcontext
from typing import Any
from uuid import UUID

import multiprocess
import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from waiting import eventually

from partbox import Dead, Event, Outbox, RetryAfter
from partbox.errors import PartboxError
from partbox.observe.tracing import Tracing

CANARY = "canary-7731"
"""What no span may say: it is in payloads, aggregate ids and tenants."""


class Traced:
    """An outbox that is traced, and the spans that ended, in their order."""

    def __init__(self, dsn: str, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.outbox = Outbox(dsn, **settings)
        self.outbox.observe(Tracing(self.provider))
        self.conn = psycopg.connect(dsn, autocommit=True)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == f"partbox.{name}"]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def publish(self, *numbers: int, event_type: str = "Counted", key: str | None = None, **fields: Any) -> None:
        events = [
            Event(event_type, {"n": number, "secret": CANARY}, aggregate_type="Key", aggregate_id=key, **fields)
            for number in numbers
        ]
        with self.conn.transaction():
            self.outbox.publish_many(self.conn, events)

    def place(self, payload: Any = None, event_type: str = "OrderPlaced", **fields: Any) -> UUID | None:
        """Publish one event."""
        with self.conn.transaction():
            return self.outbox.publish(self.conn, event_type, payload, **fields)

    def headers(self) -> list[dict[str, str]]:
        rows = self.conn.execute("select headers from partbox.record order by id").fetchall()
        return [headers or {} for (headers,) in rows]

    def deliver(self, polls: int = 1, handles: int = 1) -> None:
        """Deliver until the spans of so many polls and handlers have ended, and nothing is due."""
        with self.outbox.worker() as worker:
            eventually(lambda: len(self.named("poll")) >= polls and len(self.named("handle")) >= handles)
            assert worker.wait_until_empty(30)


@pytest.fixture
def traced_with(dsn):
    made: list[Traced] = []

    def make(**settings: Any) -> Traced:
        made.append(Traced(dsn, **settings))
        return made[-1]

    yield make
    for each in made:
        each.conn.close()
        each.provider.shutdown()


@pytest.fixture
def traced(traced_with) -> Traced:
    return traced_with()


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def linked(span: ReadableSpan, what: str) -> list[int]:
    """The ids of the spans that it links to."""
    return [link.context.span_id for link in span.links if (link.attributes or {}).get("partbox.link") == what]


def errors(span: ReadableSpan) -> list[Any]:
    return [(event.attributes or {}).get("exception.type") for event in span.events if event.name == "exception"]


# Publishing.


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
    assert told(span) == {
        "messaging.system": "partbox",
        "messaging.operation.name": "publish",
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
    assert [told(span)["partbox.event_type"] for span in traced.named("publish")] == [
        "OrderPlaced",
        ("OrderPaid", "OrderPlaced"),
    ]
    assert all("traceparent" in headers for headers in traced.headers())


def test_what_a_hook_suppresses_leaves_no_span(traced):
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


# Handling and polling.


def test_a_handler_runs_in_a_span_that_links_to_its_publish_and_its_poll(traced):
    current = []
    traced.outbox.on("Counted")(lambda event: current.append(trace.get_current_span().get_span_context().span_id))
    traced.publish(1, key=CANARY, tenant_id=CANARY)

    traced.deliver()

    span, poll = traced.one("handle"), traced.one("poll")
    assert current == [span.context.span_id]
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
        "messaging.message.id": str(row[0]),
        "partbox.event_type": "Counted",
        "partbox.aggregate_type": "Key",
        "partbox.subscription": "default",
        "partbox.handler": handler,
        "partbox.partition": row[1],
        "partbox.attempt": 1,
        "partbox.epoch": row[2],
        "partbox.outcome": "done",
    }
    assert told(poll) == {
        "messaging.system": "partbox",
        "messaging.operation.name": "poll",
        "partbox.subscription": "default",
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
    traced.deliver(handles=3)

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

    traced.deliver(handles=2)

    assert [told(span)["partbox.outcome"] for span in traced.named("handle")] == ["done", "done"]
    assert sum(told(poll)["success.count"] for poll in traced.named("poll")) == 2


def test_a_call_that_is_repeated_before_its_outcome_is_told_leaves_a_span_without_one(traced):
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

    traced.deliver(handles=2)

    first, second = traced.named("handle")
    assert [told(span)["partbox.attempt"] for span in (first, second)] == [1, 2]
    assert [told(span)["partbox.outcome"] for span in (first, second)] == ["retrying", "dead"]
    assert [errors(span) for span in (first, second)] == [["ValueError"], ["ValueError"]]
    assert {span.status.status_code for span in (first, second)} == {StatusCode.ERROR}
    poll = traced.one("poll")  # a retry is not read from the log again
    assert (told(poll)["success.count"], told(poll)["failure.count"]) == (0, 1)
    assert linked(second, "publish") == linked(first, "publish") != []


def test_a_returned_death_is_an_error_and_a_returned_delay_is_none(traced):
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
    traced.deliver(handles=3)

    spans = {(told(span)["partbox.event_type"], told(span)["partbox.outcome"]): span for span in traced.named("handle")}
    assert set(spans) == {("Hopeless", "dead"), ("Early", "deferred"), ("Early", "done")}
    dead = spans["Hopeless", "dead"]
    assert (dead.status.status_code, dead.status.description) == (StatusCode.ERROR, "nobody wants it")
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
        assert worker.wait_until_empty(30)
        eventually(
            lambda: (
                traced.conn.execute("select count(*) from partbox.partition where owner is not null").fetchone()
                == (256,)
            )
        )
    traced.publish(1)
    traced.deliver()

    assert [told(poll)["batch.size"] for poll in traced.named("poll")] == [1]


def test_what_waits_behind_a_failure_leaves_its_poll_at_last_and_counts_when_it_is_done(traced):
    """Three of one key: the first fails, the others are held until it is dead."""

    @traced.outbox.on("Counted", max_attempts=2, retry="fixed:10ms")
    def handle(event):
        if event.payload["n"] == 1:
            raise ValueError("no")

    traced.publish(1, 2, 3, key="k")
    traced.deliver(handles=4)

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
    traced.deliver(handles=3)

    assert [linked(span, "publish") for span in traced.named("handle")] == [[], [], []]


# As a part of the whole.


def test_worker_processes_trace_by_the_provider_of_the_module_they_import(dsn, tmp_path, forks):
    (tmp_path / "traced_shop.py").write_text(
        """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from partbox import Outbox
from partbox.observe.tracing import Tracing

exporter = ConsoleSpanExporter(out=open("spans", "a"), formatter=lambda span: span.to_json(indent=None) + chr(10))
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter))
trace.set_tracer_provider(provider)
outbox = Outbox()
outbox.observe(Tracing())
outbox.on("Counted")(lambda event: None)
"""
    )
    with psycopg.connect(dsn) as conn:
        Outbox(dsn).publish_many(conn, [Event("Counted", {}) for _ in range(5)])
    flags = ["--dsn", dsn, "--processes", "1", "--until-empty"]
    process = forks.start("partbox", "worker", "traced_shop:outbox", *flags, cwd=tmp_path)
    _, said = process.communicate()
    assert process.returncode == 0, said

    spans = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    assert [span["name"] for span in spans].count("partbox.handle") == 5
    assert sum(span["attributes"].get("success.count", 0) for span in spans) == 5


def test_a_provider_does_not_travel_and_a_function_that_makes_one_does():
    pickler = multiprocess.reduction.ForkingPickler

    with pytest.raises(PartboxError, match="does not travel to worker processes: give Tracing a function"):
        pickler.dumps(Tracing(TracerProvider(shutdown_on_exit=False)))

    pickler.dumps(Tracing())
    made = pickler.loads(pickler.dumps(Tracing(_provider)))
    with made.publishing([Event("Counted", {})]) as headers:
        assert headers["traceparent"].startswith("00-")


def _provider() -> TracerProvider:
    return TracerProvider(shutdown_on_exit=False)


def test_without_opentelemetry_the_import_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "partbox.observe.tracing")

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'partbox\[otel\]'"):
        import partbox.observe.tracing  # noqa: F401


def test_the_core_imports_nothing_of_it(forks, tmp_path):
    """The process that commands are forked from has imported them all."""
    (tmp_path / "look.py").write_text(
        "import sys; sys.exit(not {'partbox', 'partbox.cli'} <= {*sys.modules} or 'opentelemetry' in sys.modules)"
    )
    process = forks.start("python", "look.py", cwd=tmp_path)
    assert (process.communicate(), process.returncode) == (("", ""), 0)
