"""Trace propagation: W3C trace context in the headers of an event."""

from collections.abc import Iterable
from functools import lru_cache

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from partbox.events import DeliveredEvent, Event

PARENT, STATE = "traceparent", "tracestate"

_propagator = TraceContextTextMapPropagator()


def headers_for(events: Iterable[Event]) -> dict[str, str]:
    """The current context as headers; empty without a trace.

    The state is left out if one of the events has a parent of its own: it would not be that parent's state.
    """
    headers: dict[str, str] = {}
    _propagator.inject(headers)
    if STATE in headers and any(PARENT in event.headers for event in events):
        del headers[STATE]
    return headers


def published_in(event: DeliveredEvent) -> SpanContext | None:
    """The context that the event was published in; None if its headers hold none that can be read."""
    try:
        headers = event.headers
    except (ValueError, TypeError, AttributeError):  # not partbox wrote them
        return None
    parent, state = headers.get(PARENT), headers.get(STATE)
    return _context(parent, state if isinstance(state, str) else None) if isinstance(parent, str) else None


@lru_cache(maxsize=256)  # the events of a batch have the same
def _context(parent: str, state: str | None) -> SpanContext | None:
    carrier = {PARENT: parent} if state is None else {PARENT: parent, STATE: state}
    context = get_current_span(_propagator.extract(carrier, Context())).get_span_context()
    return context if context.is_valid else None
