"""Warnings about events that no handler takes, or that are newer than the code, once for each kind in a process."""

import logging
import threading
from collections.abc import Sequence
from typing import Any

from partbox.errors import PayloadError
from partbox.events import DeliveredEvent
from partbox.handlers import RouteRow
from partbox.observe.logs.log_event import log_event
from partbox.protocol.parking import RowState
from partbox.protocol.verdict import Verdict

log = logging.getLogger("partbox.worker")

# Kinds that are remembered. Types are free text, so their number has no bound.
MAX_KINDS = 100
MAX_TYPE_LENGTH = 200  # characters
# Registered types that a warning names.
MAX_NAMED_TYPES = 20


class SeenKinds:
    """A bounded set that tells whether an event is the first of its kind. Any thread may use it."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """True if the set has reached its bound and remembers no further kinds of events."""
        # No further event counts as the first of its kind then.
        return len(self._seen) >= MAX_KINDS

    def is_first(self, kind: Any) -> bool:
        """Return True at the first call with each kind of event, and False afterwards."""
        # Once the number of kinds reaches its bound, new kinds return False too.
        if kind in self._seen or self.is_full:
            return False
        # Only one of two threads may be the first.
        with self._lock:
            known = len(self._seen)
            if known < MAX_KINDS:
                self._seen.add(kind)
            return len(self._seen) > known


class UnroutableWarning(SeenKinds):
    """A function that logs a warning for the first event of each type that has no handler. Any thread may use it."""

    def __init__(self, subscription: str, registered: Sequence[RouteRow], policy: str) -> None:
        self._subscription = subscription
        self._registered_rows = registered
        self._policy = policy
        super().__init__()

    def __call__(self, event: DeliveredEvent) -> None:
        if not self.is_first(event.event_type[:MAX_TYPE_LENGTH]):
            return
        last = "; further types are not named" if self.is_full else ""
        text = "no handler takes %r of aggregate type %r in subscription %r: on_unroutable is %r; handlers take %s%s"
        given = (
            event.event_type,
            event.aggregate_type,
            self._subscription,
            self._policy,
            self._describe_registered(),
            last,
        )
        log_event(log, "unroutable", text, *given, about=event)

    def _describe_registered(self) -> str:
        named = [(row.event_type, row.aggregate_type) for row in self._registered_rows[:MAX_NAMED_TYPES]]
        pairs = [f"{event!r}" if only is None else f"{event!r} of {only!r}" for event, only in named]
        more = len(self._registered_rows) - len(pairs)
        return (", ".join(pairs) or "nothing") + (f" and {more} more" if more else "")


class NewerVersionWarning(SeenKinds):
    """A logger of warnings about the first event of each type and version newer than the event class in use."""

    def warn(self, event: DeliveredEvent, error: BaseException, handler: str, verdict: Verdict | None) -> None:
        """Log that an event's version is newer than the event class in this process, and the consequence."""
        # Only the first event of each type and version is logged.
        if not self.is_first((event.event_type[:MAX_TYPE_LENGTH], _find_version(event))):
            return
        if verdict is not None and verdict.state is RowState.DEFERRED:
            consequence = (
                "such events wait, without counting an attempt, until a process with the newer class owns their "
                "partition, and later events of their aggregates wait too: deploy the newer code to all "
                "workers of this subscription"
            )
        else:
            state = "done" if verdict is None else verdict.state
            consequence = (
                f"such events are {state}, because on_unroutable is set: with 'retry' they wait for the newer code"
            )
        log_event(log, "newer_version", "%s: %s", error, consequence, about=event, handler=handler)


def _find_version(event: DeliveredEvent) -> object:
    try:
        return event.version
    except PayloadError:
        return None
