"""Sentry: one issue for each cause of failing events, which is a subscription, an event type and an error class.

A report has the application's stack without local variables, the first line of the error's text, and the position of
the event. It has no payload, tenant or breadcrumbs, and an aggregate id only where an error of partbox names the event.
Reports belong to the trace in which the event was published."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import uuid4

try:
    import sentry_sdk
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError("reports need Sentry's SDK: pip install 'partbox[sentry]'", name=missing.name) from None
from sentry_sdk.scope import add_global_event_processor
from sentry_sdk.utils import current_stacktrace, event_from_exception

from partbox.events import DeliveredEvent, Event
from partbox.log_rate_limit import LogRateLimiter
from partbox.observe.logs.table import PREFIX
from partbox.observe.observer import Observer
from partbox.protocol.verdict import Verdict
from partbox.text.printing import format_error_name, shorten_line
from partbox.text.secrets import mask_secrets

HEADER = "sentry-trace"
LONGEST = 1_000  # characters of an error's text
# Log events about failures that are reported anyway.
REPORTED_EVENTS = frozenset(PREFIX + name for name in ("dead", "decode_error", "failure", "retrying"))

# The trace headers of Sentry and of W3C.
_TRACE = re.compile(r"(?:00-)?([0-9a-f]{32})-([0-9a-f]{16})(?:-|$)")


class Sentry(Observer):
    """An observer that reports failed events to Sentry, through the client that `sentry_sdk.init` has made.

    For each cause, ten reports within ten seconds are sent, then one every ten seconds, which counts the others.
    `retries` also reports attempts that will be repeated, as warnings beside the errors for dead events. `setup` is
    called in a process that has no client yet, such as a worker process of `outbox.run()`, which does not import the
    module that called `init`."""

    def __init__(self, setup: Callable[[], object] | None = None, *, retries: bool = True) -> None:
        self._arguments = setup, retries
        self._reported_states = ("retrying", "dead") if retries else ("dead",)
        self._rate_limiter = LogRateLimiter()
        if setup is not None and not sentry_sdk.get_client().is_active():
            setup()
        _hide_variables()

    @contextmanager
    def publishing(self, events: Sequence[Event]) -> Iterator[dict[str, str]]:
        # Delivery joins the trace that the header names.
        trace = sentry_sdk.get_traceparent() if sentry_sdk.get_client().is_active() else None
        yield {HEADER: trace} if trace else {}

    def parked(
        self, event: DeliveredEvent, handler: str, verdict: Verdict, error: BaseException | None, seconds: float | None
    ) -> None:
        if verdict.state not in self._reported_states or not sentry_sdk.get_client().is_active():
            return
        cause = ["partbox", event.subscription, event.event_type, _find_error_name(verdict, error)]
        held_back = self._rate_limiter.admit(tuple(cause), time.monotonic())
        if held_back is None:
            return
        report = {
            "level": "error" if verdict.state == "dead" else "warning",
            "fingerprint": cause,
            "transaction": handler,
            "tags": _build_tags(event, handler, verdict),
            "exception": {"values": _build_exception_values(verdict, error)},
            "contexts": {"partbox": _build_event_context(event) | {"held_back": held_back}} | _trace_of(event),
        }
        with sentry_sdk.isolation_scope() as scope:
            # The breadcrumbs are of events that this thread handled before.
            scope.clear_breadcrumbs()
            sentry_sdk.capture_event(report)  # type: ignore[arg-type]

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, self._arguments


def _rebuild(setup: Callable[[], object] | None, retries: bool) -> Sentry:
    return Sentry(setup, retries=retries)


def _find_error_name(verdict: Verdict, error: BaseException | None) -> str:
    return verdict.state if error is None else format_error_name(error)


def _build_tags(event: DeliveredEvent, handler: str, verdict: Verdict) -> dict[str, str]:
    return {
        "partbox.subscription": event.subscription,
        "partbox.event_type": event.event_type,
        "partbox.handler": handler,
        "partbox.state": str(verdict.state),
    }


def _build_event_context(event: DeliveredEvent) -> dict[str, object]:
    return {
        "record_id": event.id,
        "event_id": str(event.event_id),
        "aggregate_type": event.aggregate_type,
        "partition": event.partition,
        "attempt": event.attempt,
        "epoch": event.epoch,
    }


def _build_exception_values(verdict: Verdict, error: BaseException | None) -> list[dict[str, Any]]:
    """Return an event's error and its causes in the format of Sentry."""
    # If the handler returned a verdict instead of raising, return the verdict in that form.
    if error is None:
        found = [
            {"type": _find_error_name(verdict, error), "value": verdict.error or "", "mechanism": {"type": "partbox"}}
        ]
    else:
        options = {**sentry_sdk.get_client().options, "include_local_variables": False, "add_full_stack": False}
        # The error may be any object of the application, even one with a false class, so that only its text is used.
        report, _ = event_from_exception(error, options, {"type": "partbox", "handled": True})
        found = report["exception"]["values"]
    for each in found:
        # Only the first line: the lines after it may quote the row, or the input of a model.
        first = (str(each.get("value") or "").splitlines() or [""])[0]
        each["value"] = shorten_line(mask_secrets(first), LONGEST)
    return found


def _trace_of(event: DeliveredEvent) -> dict[str, dict[str, str]]:
    try:
        given = event.headers
        found = _TRACE.match(given.get(HEADER) or given.get("traceparent") or "")
    # An event that partbox did not write may have invalid headers.
    except (ValueError, TypeError, AttributeError):
        return {}
    if found is None:
        return {}
    trace, parent = found.groups()
    return {"trace": {"trace_id": trace, "parent_span_id": parent, "span_id": uuid4().hex[16:]}}


@cache
def _hide_variables() -> None:
    """Remove local variables from Sentry reports, because they hold payloads."""
    # This applies to all reports of this process whose stacks go through partbox.
    add_global_event_processor(_strip_variables)


def _strip_variables(event: Any, hint: dict[str, Any]) -> Any:
    """Return a Sentry report without local variables, or None to drop the report as a duplicate."""
    # None drops the report, for a log line about such a failure.
    if getattr(hint.get("log_record"), "event", None) in REPORTED_EVENTS:
        return None
    options = sentry_sdk.get_client().options
    # The client would add this stack only after the processor has run.
    if options.get("attach_stacktrace") and not {"exception", "stacktrace", "threads"} & {*event}:
        stack = current_stacktrace(options["include_local_variables"], max_value_length=options["max_value_length"])
        event["threads"] = {"values": [{"stacktrace": stack, "crashed": False, "current": True}]}
    stacks = [event, *(each for kind in ("exception", "threads") for each in (event.get(kind) or {}).get("values", ()))]
    for each in stacks:
        frames = (each.get("stacktrace") or {}).get("frames") or ()
        if any(f"{frame.get('module')}.".startswith("partbox.") for frame in frames):
            for frame in frames:
                frame.pop("vars", None)
    return event
