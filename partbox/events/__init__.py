"""Events: as an application publishes them and as a handler gets them."""

from partbox.events.delivered import DeliveredEvent
from partbox.events.event import Event

__all__ = ["DeliveredEvent", "Event"]
