"""A handler's event without a database."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Unpack

from partbox.codecs import Codecs
from partbox.events import Claim, DeliveredEvent, Event
from partbox.events.delivered import EPOCH
from partbox.events.event import NOT_GIVEN, EventFields
from partbox.outbox import Outbox
from partbox.publish.arguments import event_of
from partbox.publish.fields import fields_of

MAX_PAYLOAD = 1 << 30


def delivered(  # noqa: PLR0913  public API: keyword arguments
    event: Event | str | Enum,
    payload: Any = NOT_GIVEN,
    *,
    attempt: int = 1,
    epoch: int = 1,
    id: int = 1,
    subscription: str = "default",
    created_at: datetime | None = None,
    outbox: Outbox | None = None,
    **fields: Unpack[EventFields],
) -> DeliveredEvent:
    """The event as a handler gets it: an Event, or `(type, payload, **fields)` of one.

    Its payload goes through the codecs and back, those of `outbox` if one is given. `created_at`, with a zone, is the
    time of its publishing, now unless given. PublishError for what cannot be published.
    """
    given = event_of(event, payload, fields)
    codecs = Codecs() if outbox is None else outbox.codecs
    columns = fields_of(given, codecs, MAX_PAYLOAD if outbox is None else outbox.settings.max_payload)
    partition, event_id, *names, text, data, content_type, headers = columns
    now = created_at or datetime.now(UTC)
    available_at = given.available_at if given.deliver_after is None else now + given.deliver_after
    row = (
        partition,
        id,
        event_id.bytes,
        *names,
        _bytes(text),
        data,
        content_type,
        _bytes(headers),
        _moment(available_at),
        _moment(given.occurred_at or now),
        _moment(now),
    )
    return DeliveredEvent(row, Claim(epoch, subscription, codecs), attempt)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _moment(value: datetime | None) -> bytes | None:
    """Microseconds since 2000, as the database sends them."""
    return None if value is None else ((value - EPOCH) // timedelta(microseconds=1)).to_bytes(8, signed=True)
