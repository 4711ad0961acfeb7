"""Events: as an application publishes them and as a handler gets them."""

from partbox.events.delivered import Claim, DeliveredEvent
from partbox.events.event import Event
from partbox.events.gathering import EventsMixin

__all__ = ["Claim", "DeliveredEvent", "Event", "EventsMixin"]
