"""Warns of events that no handler takes: of the first of each event type, once in each process; and of too new ones."""

import logging
import threading
from collections.abc import Sequence
from typing import Any

from partbox.errors import PayloadError
from partbox.events import DeliveredEvent
from partbox.handlers import Row
from partbox.observe.logs.log_event import log_event
from partbox.protocol.parking import RowState
from partbox.protocol.verdict import Verdict

log = logging.getLogger("partbox.worker")

MAX_KINDS = 100  # kinds of events that are warned of; types are free text, and their number has no bound
MAX_TYPE_LENGTH = 200  # characters of a type that are remembered
MAX_NAMED_TYPES = 20  # registered types that a warning names


class FirstSeen:
    """Tells the first of each kind from the others. Any thread."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """True if nothing counts as a first one any more."""
        return len(self._seen) >= MAX_KINDS

    def is_first(self, kind: Any) -> bool:
        """Return True once for each kind, of a bounded number of kinds."""
        if kind in self._seen or self.is_full:
            return False
        with self._lock:  # of two threads one is the first
            known = len(self._seen)
            if known < MAX_KINDS:
                self._seen.add(kind)
            return len(self._seen) > known


class UnroutableWarning(FirstSeen):
    """Called with every event without a handler. Any thread."""

    def __init__(self, subscription: str, registered: Sequence[Row], policy: str) -> None:
        self._subscription = subscription
        self._registered = registered
        self._policy = policy
        super().__init__()

    def __call__(self, event: DeliveredEvent) -> None:
        if not self.is_first(event.event_type[:MAX_TYPE_LENGTH]):
            return
        last = "; further types are not named" if self.is_full else ""
        text = "no handler takes %r of aggregate type %r in subscription %r: on_unroutable is %r; handlers take %s%s"
        given = event.event_type, event.aggregate_type, self._subscription, self._policy, self._registered_text(), last
        log_event(log, "unroutable", text, *given, about=event)

    def _registered_text(self) -> str:
        """The registered types, with the aggregate type where only one is taken."""
        named = [(row.event_type, row.aggregate_type) for row in self._registered[:MAX_NAMED_TYPES]]
        pairs = [f"{event!r}" if only is None else f"{event!r} of {only!r}" for event, only in named]
        more = len(self._registered) - len(pairs)
        return (", ".join(pairs) or "nothing") + (f" and {more} more" if more else "")


class NewerVersionWarning(FirstSeen):
    """Warns of events that are newer than their class here: once for each type and version. Any thread."""

    def warn(self, event: DeliveredEvent, error: BaseException, handler: str, verdict: Verdict | None) -> None:
        """Warn of the event if it is the first of its kind, and say what follows."""
        if not self.is_first((event.event_type[:MAX_TYPE_LENGTH], _version(event))):
            return
        if verdict is not None and verdict.state is RowState.DEFERRED:
            consequence = (
                "events like it wait, uncharged, until a process with the newer class has their partition, and later "
                "ones of their aggregates wait behind them: deploy the newer code to all workers of this subscription"
            )
        else:
            state = "done" if verdict is None else verdict.state
            consequence = (
                f"events like it are {state}, for on_unroutable is set: 'retry' has them wait for the newer code"
            )
        log_event(log, "newer_version", "%s: %s", error, consequence, about=event, handler=handler)


def _version(event: DeliveredEvent) -> object:
    """The version of the event, None where nobody can read it."""
    try:
        return event.version
    except PayloadError:
        return None
