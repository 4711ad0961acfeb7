"""Names and attributes of spans, held against OpenTelemetry's own list of them."""

import ast
import inspect
from types import ModuleType

from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind
from spans import linked, told

from partbox import Dead

OWN = ("partbox.", "batch.size", "success.count", "failure.count", "open.count")
DESTINATION = messaging_attributes.MESSAGING_DESTINATION_NAME
KINDS = {"publish": ("send", SpanKind.PRODUCER), "poll": ("receive", SpanKind.CLIENT)}


def current(module: ModuleType) -> set[str]:
    """The attributes that the conventions have and do not call deprecated."""
    body = ast.parse(inspect.getsource(module)).body
    names = (pair for pair in zip(body, [*body[1:], ast.Pass()], strict=True) if isinstance(pair[0], ast.AnnAssign))
    return {node.value.value for node, after in names if "Deprecated" not in ast.unparse(after)}


def test_every_attribute_is_of_the_conventions_of_today_or_of_our_own(traced):
    @traced.outbox.on("Bad", max_attempts=1)
    def fail(event):
        raise ValueError("no")

    traced.outbox.on("Hopeless")(lambda event: Dead("no"))
    traced.outbox.on_batch("Listed")(lambda events: None)
    for event_type in ("Bad", "Hopeless", "Listed", "Listed"):
        traced.place({}, event_type)
    traced.publish(1, 2, event_type="Listed")
    traced.deliver()

    known = current(messaging_attributes) | current(error_attributes)
    assert "messaging.operation" not in known  # deprecated
    said = {name for span in traced.spans for name in told(span) if not name.startswith(OWN)}
    assert said <= known
    assert said == {
        *("messaging.system", "messaging.operation.name", "messaging.operation.type", "messaging.destination.name"),
        *("messaging.destination.subscription.name", "messaging.destination.partition.id", "messaging.message.id"),
        *("messaging.batch.message_count", "error.type"),
    }


def test_names_types_and_kinds_are_those_that_the_conventions_ask_for(traced):
    traced.outbox.on("*")(lambda event: None)
    traced.place({}, "OrderPlaced")
    traced.deliver()

    types = {each.value for each in messaging_attributes.MessagingOperationTypeValues}
    for span in traced.spans:
        about = told(span)
        name, kind = about["messaging.operation.name"], about["messaging.operation.type"]
        assert kind in types
        assert (kind, span.kind) == KINDS.get(name, ("process", SpanKind.CONSUMER))
        assert span.name == " ".join([name, *([about[DESTINATION]] if DESTINATION in about else [])])
    assert sorted(span.name for span in traced.spans) == ["handle OrderPlaced", "poll", "publish OrderPlaced"]


def test_a_call_for_one_event_joins_the_trace_of_its_publish_where_that_is_asked_for(traced_with):
    traced = traced_with(tracing={"join": True})
    traced.outbox.on("Counted")(lambda event: None)
    traced.outbox.on_batch("Listed")(lambda events: None)
    traced.publish(1)
    traced.publish(2, 3, event_type="Listed")
    traced.deliver()

    one, several = traced.named("publish")
    (single,) = (span for span in traced.named("handle") if span.name == "handle Counted")
    assert (single.context.trace_id, single.parent.span_id) == (one.context.trace_id, one.context.span_id)
    assert linked(single, "publish") == [one.context.span_id]
    lists = [span for span in traced.named("handle") if "messaging.batch.message_count" in told(span)]
    assert all(span.parent is None and linked(span, "publish") == [several.context.span_id] for span in lists)
