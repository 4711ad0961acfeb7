"""Errors that a test injects into handlers: an interceptor, the innermost one."""

from collections import deque
from dataclasses import dataclass
from enum import Enum

from partbox.events import DeliveredEvent
from partbox.events.checks import kind

Error = BaseException | type[BaseException]


@dataclass(slots=True)
class _Fault:
    event_type: str | None
    error: Error
    times: int


class Faults:
    """Raises the injected errors before a handler runs."""

    def __init__(self) -> None:
        self._faults: deque[_Fault] = deque()

    def add(self, event_type: str | Enum | None, error: Error, times: int) -> None:
        """Raise the error at the next `times` deliveries of this type; None: of any."""
        if not isinstance(error, BaseException) and not (isinstance(error, type) and issubclass(error, BaseException)):
            raise TypeError(f"{error!r} is not an exception: give the one to raise")
        if times < 1:
            raise ValueError(f"times must be 1 or more, not {times}")
        self._faults.append(_Fault(None if event_type is None else kind("event_type", event_type), error, times))

    def before(self, event: DeliveredEvent) -> None:
        """Called before each event, by the worker."""
        for fault in self._faults:
            if fault.event_type in (None, event.event_type):
                fault.times -= 1
                if not fault.times:
                    self._faults.remove(fault)
                raise fault.error
