"""Warns of events that no handler takes: of the first of each event type, once in each process; and of too new ones."""

import logging
import threading
from collections.abc import Sequence

from partbox.events import DeliveredEvent
from partbox.handlers import Row
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.worker")

MOST = 100  # event types that are warned of; types are free text, and their number has no bound
KEPT = 200  # characters of a type that are remembered
NAMED = 20  # registered types that a warning names


class Unroutable:
    """Called with every event without a handler. Any thread."""

    def __init__(self, subscription: str, registered: Sequence[Row], becomes: str) -> None:
        self._subscription = subscription
        self._registered = registered
        self._becomes = becomes
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, event: DeliveredEvent) -> None:
        if len(self._seen) >= MOST or event.event_type[:KEPT] in self._seen or not self._is_first(event):
            return
        last = "; further types are not named" if len(self._seen) >= MOST else ""
        text = "no handler takes %r of aggregate type %r in subscription %r: on_unroutable is %r; handlers take %s%s"
        given = event.event_type, event.aggregate_type, self._subscription, self._becomes, self._named(), last
        log_event(log, "unroutable", text, *given, about=event)

    def _is_first(self, event: DeliveredEvent) -> bool:
        with self._lock:  # of two threads one is the first
            known = len(self._seen)
            if known < MOST:
                self._seen.add(event.event_type[:KEPT])
            return len(self._seen) > known

    def _named(self) -> str:
        """The registered types, with the aggregate type where only one is taken."""
        named = [(row.event_type, row.aggregate_type) for row in self._registered[:NAMED]]
        pairs = [f"{event!r}" if only is None else f"{event!r} of {only!r}" for event, only in named]
        more = len(self._registered) - len(pairs)
        return (", ".join(pairs) or "nothing") + (f" and {more} more" if more else "")


def tell_newer(event: DeliveredEvent, error: BaseException, handler: str) -> None:
    """Warn of an event whose class is older here than where it was published."""
    log_event(log, "newer_version", "%s: on_unroutable decides", error, about=event, handler=handler)
