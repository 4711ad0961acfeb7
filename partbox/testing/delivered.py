"""Delivered events without a database, for tests that call a handler directly."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar, Unpack, overload

from partbox.classes import Instance
from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent, Event
from partbox.events.checks import check_time
from partbox.events.delivered import EPOCH, ProcessState
from partbox.events.event import NOT_GIVEN, EventFields
from partbox.events.record import Row
from partbox.operations.arguments import check_count
from partbox.outbox import Outbox
from partbox.publish.arguments import build_event
from partbox.publish.fields import EventColumns, encode_event

MAX_PAYLOAD = 1 << 30

AnyInstance = TypeVar("AnyInstance", bound=Instance)


class DeliveredFields(EventFields, total=False):
    """The keyword arguments of `delivered`: the fields of the event and of its delivery."""

    attempt: int
    epoch: int
    id: int
    subscription: str
    created_at: datetime | None
    state: Any
    outbox: Outbox | None


@overload
def delivered(
    event: Event | str | Enum, payload: Any = NOT_GIVEN, **fields: Unpack[DeliveredFields]
) -> DeliveredEvent: ...


@overload
def delivered(event: AnyInstance, **fields: Unpack[DeliveredFields]) -> DeliveredEvent[AnyInstance]: ...


def delivered(  # noqa: PLR0913  public API: keyword arguments
    event: Any,
    payload: Any = NOT_GIVEN,
    *,
    attempt: int = 1,
    epoch: int = 1,
    id: int = 1,
    subscription: str = "default",
    created_at: datetime | None = None,
    state: Any = None,
    outbox: Outbox | None = None,
    **fields: Unpack[EventFields],
) -> DeliveredEvent[Any]:
    """Build an event as a handler gets it, for a unit test that calls a handler directly.

    The event is an instance of an event class, an Event, or the arguments `(type, payload, **fields)` of one. The
    codecs of `outbox`, or default ones, encode and decode the payload. The payload of an instance comes back as its
    class. `created_at` is the time of the publish, with a zone, by default now. `state` is the value that the lifespan
    yields. Raise PublishError for an event that cannot be published."""
    for name, value in (("attempt", attempt), ("epoch", epoch), ("id", id)):
        check_count(name, value, 1)
    check_time("created_at", created_at)
    if created_at is not None and fields.get("available_at") is not None:
        fields = {"occurred_at": created_at, **fields}
    given = build_event(event, payload, fields)
    codecs = Codecs() if outbox is None else outbox.codecs
    columns = encode_event(given, codecs, MAX_PAYLOAD if outbox is None else outbox.settings.max_payload)
    row = _build_row(given, columns, id, created_at or datetime.now(UTC))
    found: DeliveredEvent[Any] = DeliveredEvent(
        row, ClaimContext(epoch, subscription, codecs, ProcessState(state)), attempt
    )
    return found if isinstance(event, Event | str | Enum) else found.with_payload(found.payload_as(type(event)))


def _build_row(event: Event, columns: EventColumns, id: int, now: datetime) -> Row:
    partition, event_id, *names, text, data, content_type, headers = columns
    available_at = event.available_at if event.deliver_after is None else now + event.deliver_after
    return (
        partition,
        id,
        event_id.bytes,
        *names,
        _encode_text(text),
        data,
        content_type,
        _encode_text(headers),
        _encode_time(available_at),
        _encode_time(event.occurred_at or now),
        _encode_time(now),
    )


def _encode_text(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _encode_time(value: datetime | None) -> bytes | None:
    """Convert a datetime into microseconds since 2000, as the database sends times."""
    return None if value is None else ((value - EPOCH) // timedelta(microseconds=1)).to_bytes(8, signed=True)
