"""OpenTelemetry spans for each publish, each poll that returns records, and each call of a handler.

The context of a publish travels in the headers of the event (W3C trace context), and the spans of its handlers link to
it. Names and attributes follow the semantic conventions for messaging, with the event type as the destination, and
`partbox.*` where the conventions have no name. A span holds no payload, aggregate id or tenant. It holds the text of a
handler's exception with secrets masked."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from traceback import format_exception
from typing import Any

from partbox.observe.conventions import (
    COUNT,
    DESTINATION,
    ERROR,
    MESSAGE,
    PARTITION,
    SUBSCRIPTION,
    VERSION,
    Operation,
    describe_operation,
    require_provider_factory,
)

# `conventions` comes first, because its error says which extra to install.
# isort: split
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from partbox.db import connect
from partbox.events import DeliveredEvent, Event
from partbox.observe.observer import Load, Observer, Started
from partbox.observe.polls import OpenPollSpans
from partbox.protocol.verdict import Verdict
from partbox.text.printing import format_error_name, text_of
from partbox.text.secrets import mask_secrets

FAILED = ("retrying", "dead")
# Seconds after the end of a handler within which its outcome arrives, if ever.
UNSETTLED = 60.0
# Most links of a span, the SDK's default limit.
LINKS = 128
# Most event types that an attribute names.
TYPES = 20
PARENT, STATE = "traceparent", "tracestate"

_propagator = TraceContextTextMapPropagator()


@dataclass(slots=True)
class _HandlerSpan:
    """The tracing span of one call of a handler, which ends when all events of the call have an outcome."""

    # `ended_at` is when the call returned, in nanoseconds, and `unsettled_count` the number of its unsettled events.
    # `outcome` is "done" or the state of the first event that is not done.

    span: Span
    unsettled_count: int
    ended_at: int | None = None
    has_raised: bool = False
    is_closed: bool = False
    outcome: str | None = None

    def settle(self, verdict: Verdict | None) -> None:
        """Record the outcome of one event of the handler's call, and end the span after the last event."""
        if verdict is not None and verdict.state in FAILED and not self.has_raised:
            self.span.set_status(StatusCode.ERROR, verdict.error or verdict.state)
            self.span.set_attribute(ERROR, verdict.state)
        if verdict is not None and self.outcome in (None, "done"):
            self.outcome = verdict.state
        self.outcome = self.outcome or "done"
        self.unsettled_count -= 1
        if not self.unsettled_count:
            self.close()

    def close(self) -> None:
        """End the tracing span of the handler's call, unless it has ended."""
        # Other events of the batch may still point to it.
        if self.is_closed:
            return
        self.is_closed = True
        if self.outcome is not None:
            self.span.set_attribute("partbox.outcome", self.outcome)
        self.span.end(self.ended_at)


class Tracing(Observer):
    """An observer that creates OpenTelemetry spans for publishing, polling and handling.

    By default they go to the global tracer provider. A provider cannot be sent to worker processes that get their
    handlers from this process. Give a function that makes one there, or set the global provider in the module that they
    import. If the process instruments psycopg, `statements` also traces the workers' statements (ten a second for an
    idle worker) and the statements of transactional handlers. With `join`, the call for a single event belongs to the
    trace of its publish instead of beginning a trace of its own."""

    def __init__(
        self,
        tracer_provider: TracerProvider | Callable[[], TracerProvider] | None = None,
        *,
        statements: bool = False,
        join: bool = False,
    ) -> None:
        self._given_provider = tracer_provider
        self._statements = statements
        self._joins = join
        if statements:
            connect.is_instrumented = True
        self._lock = threading.RLock()
        self._cached_tracer: Tracer | None = None
        self._subscription: str | None = None
        self._poll_spans: OpenPollSpans | None = None
        # By subscription and record id.
        self._handler_spans: dict[tuple[str, int], _HandlerSpan] = {}

    @contextmanager
    def publishing(self, events: Sequence[Event]) -> Iterator[dict[str, str]]:
        about = _build_event_attributes(events)
        with self._tracer.start_as_current_span(
            _build_span_name("publish", about),
            kind=SpanKind.PRODUCER,
            attributes={**describe_operation("publish", Operation.SEND), **about},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield build_trace_headers(events)
            except Exception as error:
                # Only the first line, because PostgreSQL's text may quote the row.
                said = _describe_exception(error, (text_of(error).splitlines() or [""])[0])
                span.add_event("exception", said)
                span.set_attribute(ERROR, said["exception.type"])
                span.set_status(StatusCode.ERROR, ": ".join(said.values()))
                raise

    def started(self, worker: Started) -> None:
        self._subscription = worker.subscription

    def read(self, records: Sequence[tuple[int, int]], seconds: float, late_ids: int) -> None:
        self._open_polls.start_span(records, seconds)

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        self._open_polls.note_settled(_record_of(event), _to_success(verdict))

    def released(self, partition: int) -> None:
        self._open_polls.drop_partition(partition)

    forgotten = lost = released

    def loaded(self, load: Load) -> None:
        self._open_polls.end_stale(load.records)
        self._end_unsettled()

    @contextmanager
    def handling(self, events: Sequence[DeliveredEvent], handler: str) -> Iterator[None]:
        about = _build_handle_attributes(events, handler)
        span = self._tracer.start_span(
            _build_span_name("handle", about),
            context=self._find_parent(events),
            kind=SpanKind.CONSUMER,
            links=self._build_links(events),
            attributes=about,
        )
        handled = _HandlerSpan(span, len(events))
        keys = [(event.subscription, event.id) for event in events]
        with self._lock:
            before = [self._handler_spans.pop(key, None) for key in keys]
            self._handler_spans.update(dict.fromkeys(keys, handled))
        # A rolled-back event, or one read anew, runs again, and its first run has no outcome.
        for each in before:
            if each is not None and each.ended_at is not None:
                each.close()
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        # Cancellation and SystemExit included.
        except BaseException as error:
            handled.has_raised = True
            span.set_status(StatusCode.ERROR, format_error_name(error))
            span.set_attribute(ERROR, format_error_name(error))
            trail = mask_secrets("".join(format_exception(error)))
            span.add_event("exception", _describe_exception(error, text_of(error)) | {"exception.stacktrace": trail})
            raise
        finally:
            handled.ended_at = time.time_ns()

    def settled(self, event: DeliveredEvent, handler: str, verdict: Verdict | None) -> None:
        self._open_polls.note_settled(_record_of(event), _to_success(verdict))
        with self._lock:
            # The events of a batch are settled one after the other.
            handled = self._handler_spans.pop((event.subscription, event.id), None)
        if handled is not None:
            handled.settle(verdict)

    def _end_unsettled(self) -> None:
        """End the spans of handler calls whose outcome will never come."""
        # The reason is a lost partition or a rolled-back transaction.
        is_closed = time.time_ns() - int(UNSETTLED * 1e9)
        with self._lock:
            keys = [
                key
                for key, each in self._handler_spans.items()
                if each.ended_at is not None and each.ended_at < is_closed
            ]
            unsettled = {id(each): each for each in map(self._handler_spans.pop, keys)}
        for handled in unsettled.values():
            handled.close()

    def _find_parent(self, events: Sequence[DeliveredEvent]) -> Context:
        """Return the trace context in which a handler's span starts: the context of the publish, or an empty one."""
        # The call joins the trace of the publish only if it has a single event and `join` is set.
        published = find_publish_context(events[0]) if self._joins and len(events) == 1 else None
        return Context() if published is None else trace.set_span_in_context(NonRecordingSpan(published), Context())

    def _build_links(self, events: Sequence[DeliveredEvent]) -> list[Link]:
        """Return span links that connect a handler's call to the queries and publishes of its events."""
        # Each query and each publish is linked once.
        contexts: dict[tuple[int, int], Link] = {}
        for event in events:
            for context, what in (
                (self._open_polls.find_context(_record_of(event)), "poll"),
                (find_publish_context(event), "publish"),
            ):
                if context is not None and len(contexts) < LINKS:
                    contexts.setdefault((context.trace_id, context.span_id), Link(context, {"partbox.link": what}))
        return [*contexts.values()]

    @property
    def _tracer(self) -> Tracer:
        with self._lock:
            if self._cached_tracer is None:
                given = self._given_provider() if callable(self._given_provider) else self._given_provider
                self._cached_tracer = trace.get_tracer("partbox", VERSION, given)
            return self._cached_tracer

    @property
    def _open_polls(self) -> OpenPollSpans:
        if self._poll_spans is None:
            with self._lock:
                self._poll_spans = self._poll_spans or OpenPollSpans(self._tracer, self._subscription)
        return self._poll_spans

    def __reduce__(self) -> tuple[Any, ...]:
        given = require_provider_factory(self._given_provider, "tracer provider", "Tracing")
        return partial(Tracing, statements=self._statements, join=self._joins), (given,)


def _describe_exception(error: BaseException, said: str) -> dict[str, str]:
    return {"exception.type": format_error_name(error), "exception.message": mask_secrets(said)}


def _record_of(event: DeliveredEvent) -> tuple[int, int]:
    return event.partition, event.id


def _to_success(verdict: Verdict | None) -> bool | None:
    """Convert an event's outcome for tracing: True if done, False if failed, None if put off."""
    # The span of the event's poll counts this.
    if verdict is None:
        return True
    return False if verdict.state in FAILED else None


def build_trace_headers(events: Sequence[Event]) -> dict[str, str]:
    """Return the current trace context as event headers. They are empty outside a trace."""
    # The trace state is left out if an event has a trace parent of its own, which the state would not belong to.
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    if STATE in headers and any(PARENT in event.headers for event in events):
        del headers[STATE]
    return headers


def find_publish_context(event: DeliveredEvent) -> SpanContext | None:
    """Return the trace context in an event's headers, or None if they hold no valid one."""
    # The event was published in this context.
    try:
        headers = event.headers
    # An event that partbox did not write may have invalid headers.
    except (ValueError, TypeError, AttributeError):
        return None
    parent, state = headers.get(PARENT), headers.get(STATE)
    return _parse_context(parent, state if isinstance(state, str) else None) if isinstance(parent, str) else None


# Cached, because the events of a batch have the same context.
@lru_cache(maxsize=256)
def _parse_context(parent: str, state: str | None) -> SpanContext | None:
    carrier = {PARENT: parent} if state is None else {PARENT: parent, STATE: state}
    context = trace.get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    return context if context.is_valid else None


def _build_span_name(operation: str, about: dict[str, Any]) -> str:
    return f"{operation} {about[DESTINATION]}" if DESTINATION in about else operation


def _build_handle_attributes(events: Sequence[DeliveredEvent], handler: str) -> dict[str, Any]:
    # The call of a batch has no partition, attempt or epoch.
    first, *more = events
    found = {**describe_operation("handle", Operation.PROCESS), **_build_event_attributes(events)}
    found |= {SUBSCRIPTION: first.subscription, "partbox.handler": handler}
    if not more:
        found |= {PARTITION: str(first.partition), "partbox.attempt": first.attempt, "partbox.epoch": first.epoch}
    return found


def _build_event_attributes(events: Sequence[Event] | Sequence[DeliveredEvent]) -> dict[str, Any]:
    """Return the OpenTelemetry attributes of events, without payload, aggregate id or tenant."""
    types = {each.event_type for each in events}
    return {
        **({DESTINATION: events[0].event_type} if len(types) == 1 else {}),
        "partbox.event_type": _unwrap_single(types),
        "partbox.aggregate_type": _unwrap_single({each.aggregate_type for each in events}),
        **({MESSAGE: str(events[0].event_id)} if len(events) == 1 else {COUNT: len(events)}),
    }


def _unwrap_single(names: set[str]) -> str | list[str]:
    return sorted(names)[:TYPES] if len(names) > 1 else next(iter(names))
