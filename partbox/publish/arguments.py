"""What a call of `publish` or `publish_many` was given, as events."""

from collections.abc import Iterable
from enum import Enum
from typing import Any

from partbox.classes import Instance, kind_of
from partbox.errors import PublishError
from partbox.events import Event
from partbox.events.copying import Uncopied
from partbox.events.event import NOT_GIVEN, EventFields


def event_of(event: Event | str | Enum | Instance, payload: Any, fields: EventFields, *, lent: bool = False) -> Event:
    """The event to publish; PublishError if it has no payload (NOT_GIVEN), or is given twice.

    `lent`: an instance is written before its owner can change it, so no copy of it is made.
    """
    if isinstance(event, Event):
        if payload is not NOT_GIVEN or fields:
            raise PublishError("an Event already has its payload and fields: give them to the Event")
        return event
    if payload is NOT_GIVEN:
        given: Any = Uncopied(event) if lent else event
        return Event(given, **fields)
    cls: Any = event if isinstance(event, type) else type(event)
    if kind_of(cls) is not None and not isinstance(event, Enum):
        raise PublishError(f"{cls.__qualname__} has a payload beside it: publish an instance, which is its own payload")
    return Event(event, payload, **fields)


def events_of(given: Iterable[Event | Instance], *, lent: bool = False) -> list[Event]:
    """The events of a list, in which instances are mixed with them; PublishError names the place of a wrong one."""
    events: list[Event] = []
    for each in (several := list(given)):
        if isinstance(each, Event):
            events.append(each)
            continue
        try:
            if isinstance(each, str | Enum):
                raise PublishError(f"an Event is needed, not a {type(each).__name__}: wrap it in partbox.Event")
            events.append(event_of(each, NOT_GIVEN, {}, lent=lent))
        except PublishError as error:
            if len(several) == 1:
                raise
            raise PublishError(f"event {len(events)} of the list: {error}") from error
    return events
