"""The published events that a test queries."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Generic, TypedDict
from uuid import UUID

from typing_extensions import TypeVar

from partbox.events import ClaimContext, DeliveredEvent
from partbox.events.checks import check_kind
from partbox.events.declaration import type_name_of
from partbox.events.delivered import Decoder

# Most events listed in a message.
MOST = 20
# Characters of a payload in a message.
LONGEST = 200

NOTHING = (
    "nothing was published; only the publishing connection sees its uncommitted events: pass this connection as conn="
)

Row = tuple[Any, ...]
Payload = TypeVar("Payload", default=Any)


class FilterFields(TypedDict, total=False):
    """The keyword arguments, beside the event type, by which a test can filter published events."""

    aggregate_type: str | Enum | None
    aggregate_id: str | int | UUID | None
    tenant_id: str | None


class EventFilter:
    """A filter of published events by event type, aggregate and tenant.

    None matches any. An int or UUID stands for its text."""

    def __init__(
        self,
        event_type: str | Enum | type | None,
        aggregate_type: str | Enum | None = None,
        aggregate_id: str | int | UUID | None = None,
        tenant_id: str | None = None,
    ) -> None:
        given = {
            "event_type": None if event_type is None else type_name_of("event_type", event_type),
            "aggregate_type": None if aggregate_type is None else check_kind("aggregate_type", aggregate_type),
            "aggregate_id": None if aggregate_id is None else str(aggregate_id),
            "tenant_id": tenant_id,
        }
        self._cls = event_type if isinstance(event_type, type) else None
        self._fields = {name: value for name, value in given.items() if value is not None}

    def matches(self, event: DeliveredEvent) -> bool:
        return all(getattr(event, name) == value for name, value in self._fields.items())

    def with_payload_class(self, event: DeliveredEvent) -> DeliveredEvent:
        return event if self._cls is None else event.with_payload(event.payload_as(self._cls))

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._fields.items())
        return f"event with {said}" if said else "event"


class Published(list[DeliveredEvent[Payload]], Generic[Payload]):
    """The list of published events that matched a filter, in the order of publishing.

    If the filter named a class, payloads are instances of the class. `all` has all published events."""

    def __init__(self, wanted: EventFilter, events: Sequence[DeliveredEvent]) -> None:
        super().__init__(map(wanted.with_payload_class, filter(wanted.matches, events)))
        self.all = list(events)
        self._wanted = wanted

    @property
    def payloads(self) -> list[Payload]:
        """The payloads of the published events that matched, in order."""
        return [event.payload for event in self]

    def one(self) -> DeliveredEvent[Payload]:
        """Return the only published event that matched. Raise AssertionError if none or several matched."""
        # The error lists the published events.
        if len(self) != 1:
            raise AssertionError(f"{len(self) or 'no'} {self._wanted}, not one; {self._describe_all()}")
        return self[0]

    def __repr__(self) -> str:
        # A failing `assert` shows this text.
        return (
            f"<{len(self)} {self._wanted}:\n{format_events(self)}\n>"
            if self
            else f"<no {self._wanted}; {self._describe_all()}>"
        )

    def _describe_all(self) -> str:
        return f"published:\n{format_events(self.all)}" if self.all else NOTHING


def decode_events(rows: Iterable[Row], codecs: Decoder, subscription: str = "default") -> list[DeliveredEvent]:
    """Convert rows of the record table into events in the form that handlers get."""
    # Their epoch, the number of a period of ownership, is 0.
    claim = ClaimContext(0, subscription, codecs)
    return [DeliveredEvent(row, claim) for row in rows]


def format_events(events: Sequence[DeliveredEvent]) -> str:
    """Return a text with one line for each event. The payload is included, because tests may show payloads."""
    lines = [f"  {_format_line(event)}" for event in events[:MOST]]
    return "\n".join(lines) + (f"\n  and {len(events) - MOST} more" if len(events) > MOST else "")


def _format_line(event: DeliveredEvent) -> str:
    tenant = f", tenant {event.tenant_id!r}" if event.tenant_id is not None else ""
    try:
        payload = repr(event.payload)
    except Exception as error:
        payload = f"({error})"
    with_payload_class = payload if len(payload) <= LONGEST else f"{payload[:LONGEST]}…"
    return f"{event.event_type} of {event.aggregate_type}/{event.aggregate_id}{tenant}: {with_payload_class}"
