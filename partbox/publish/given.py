"""The event that a call of `publish` gives: as an Event, or as its type, payload and fields."""

from enum import Enum
from typing import Any

from partbox.errors import PublishError
from partbox.events import Event
from partbox.events.event import NOT_GIVEN, EventFields

__all__ = ["NOT_GIVEN", "event_of"]


def event_of(event: Event | str | Enum, payload: Any, fields: EventFields) -> Event:
    """The event to publish; PublishError if it has no payload (NOT_GIVEN), or is given twice."""
    if not isinstance(event, Event):
        if payload is NOT_GIVEN:
            raise PublishError(f"{event!r} has no payload: give one (None is JSON null), or an Event")
        return Event(event, payload, **fields)
    if payload is not NOT_GIVEN or fields:
        raise PublishError("an Event already has its payload and fields: give them to the Event")
    return event
