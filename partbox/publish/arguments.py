"""Convert the arguments of `publish` and `publish_many` into events."""

from collections.abc import Iterable
from enum import Enum
from typing import Any

from partbox.classes import Instance, kind_of
from partbox.errors import PublishError
from partbox.events import Event
from partbox.events.copying import BorrowedPayload
from partbox.events.event import NOT_GIVEN, EventFields


def build_event(
    event: Event | str | Enum | Instance, payload: Any, fields: EventFields, *, is_borrowed: bool = False
) -> Event:
    """Build the event from the arguments of `publish`. Raise PublishError unless there is exactly one payload."""
    # A `payload` of NOT_GIVEN means that `event` is the instance to publish. `is_borrowed` means that the instance is
    # written before its owner can change it, so it is not copied.
    if isinstance(event, Event):
        if payload is not NOT_GIVEN or fields:
            raise PublishError("an Event already has its payload and fields: give them to the Event")
        return event
    if payload is NOT_GIVEN:
        given: Any = BorrowedPayload(event) if is_borrowed else event
        return Event(given, **fields)
    cls: Any = event if isinstance(event, type) else type(event)
    if kind_of(cls) is not None and not isinstance(event, Enum):
        raise PublishError(
            f"{cls.__qualname__} was given a separate payload: publish an instance, which is its own payload"
        )
    return Event(event, payload, **fields)


def build_events(given: Iterable[Event | Instance], *, is_borrowed: bool = False) -> list[Event]:
    """Convert a list of events and event class instances into events. A PublishError names the wrong position."""
    events: list[Event] = []
    for each in (several := list(given)):
        if isinstance(each, Event):
            events.append(each)
            continue
        try:
            if isinstance(each, str | Enum):
                raise PublishError(f"an Event is needed, not a {type(each).__name__}: wrap it in partbox.Event")
            events.append(build_event(each, NOT_GIVEN, {}, is_borrowed=is_borrowed))
        except PublishError as error:
            if len(several) == 1:
                raise
            raise PublishError(f"event {len(events)} of the list: {error}") from error
    return events
