"""An application's own outbox, for the time of a test: at the test's database, with handlers that are the test's own.

Registrations and replacements of the test are undone afterwards.
"""

from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum

from partbox.db.schema.outbox_database import OutboxDatabase
from partbox.events import DeliveredEvent
from partbox.events.checks import kind
from partbox.handlers import Handlers
from partbox.outbox import Outbox
from partbox.sinks.sink import Sink
from partbox.testing.sink import RecordingSink, StandIn

Error = BaseException | type[BaseException]


@dataclass(slots=True)
class _Fault:
    event_type: str | None
    error: Error
    times: int


class Faults:
    """An interceptor: raises the injected errors before a handler runs."""

    def __init__(self) -> None:
        self._faults: deque[_Fault] = deque()

    def inject(self, event_type: str | Enum | None, error: Error, times: int) -> None:
        """Raise the error at the next `times` deliveries of this type; None: of any."""
        if not isinstance(error, BaseException) and not (isinstance(error, type) and issubclass(error, BaseException)):
            raise TypeError(f"{error!r} is not an exception: give the one to raise")
        if times < 1:
            raise ValueError(f"times must be 1 or more, not {times}")
        self._faults.append(_Fault(None if event_type is None else kind("event_type", event_type), error, times))

    def before(self, event: DeliveredEvent) -> None:
        for fault in self._faults:
            if fault.event_type in (None, event.event_type):
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                raise fault.error


def point(outbox: Outbox, dsn: str, faults: Faults) -> Callable[[], None]:
    """Point the outbox at this database, with these faults around its handlers; return the undo."""
    before = dict(vars(outbox))
    outbox._database = OutboxDatabase(dsn, outbox.settings)
    outbox._hooks, outbox.handlers = copy(outbox._hooks), copy(outbox.handlers)
    outbox._hooks._of = dict(outbox._hooks._of)
    outbox._publisher = replace(outbox._publisher, hooks=outbox._hooks)
    outbox.handlers._registered = dict(outbox.handlers._registered)
    outbox.handlers.interceptors = (*outbox.handlers.interceptors, faults)

    def restore() -> None:
        vars(outbox).clear()
        vars(outbox).update(before)

    return restore


def record(handlers: Handlers, sink: RecordingSink) -> int:
    """Replace every registered sink by the recording sink; return their number."""
    sinks = {key: getattr(each.call, "__self__", None) for key, each in handlers._registered.items()}
    found = {key: StandIn(original, sink) for key, original in sinks.items() if isinstance(original, Sink)}
    for key, each in found.items():
        registered = handlers._registered[key]
        handlers._registered[key] = replace(registered, call=each.handle, close=None, observed_by=each.observed_by)
    return len(found)
