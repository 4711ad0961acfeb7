"""Events, as an application publishes them and as a handler receives them."""

from partbox.events.delivered import ClaimContext, DeliveredEvent
from partbox.events.event import Event
from partbox.events.gathering import EventsMixin

__all__ = ["ClaimContext", "DeliveredEvent", "Event", "EventsMixin"]
