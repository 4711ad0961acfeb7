"""Convert events into the columns of their records."""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson

from partbox.codecs import JSON, Codecs
from partbox.errors import PublishError
from partbox.events import Event
from partbox.events.checks import IDEMPOTENCY_HEADER, RAW_HEADER, VERSION_HEADER, quote_value
from partbox.events.copying import PAYLOAD_ROOT, find_failing_part
from partbox.protocol.hashing import partition_of

COLUMNS = (
    "partition", "event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id",
    "payload", "payload_bytes", "content_type", "headers", "available_at", "occurred_at",
)  # fmt: skip

UNTIMED_COLUMNS, TIME_COLUMNS = COLUMNS[:-2], COLUMNS[-2:]

# The columns of an event without its times, in the order of UNTIMED_COLUMNS.
EventColumns = tuple[Any, ...]

_LARGE_INDEXES = [UNTIMED_COLUMNS.index(name) for name in ("payload", "payload_bytes", "headers")]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encode_event(event: Event, codecs: Codecs, max_payload: int) -> EventColumns:
    """Encode an event as the log's columns, without its times. Raise PublishError if it cannot be stored."""
    if not isinstance(event, Event):
        raise PublishError(f"an Event is needed, not a {type(event).__name__}: wrap it in partbox.Event")
    try:
        text, data, content_type, raw = codecs.encode(event.payload, event.content_type)
    except PublishError as error:
        raise _locate_error(event, codecs, error) from error
    size = len(data or b"") if text is None else len(text) if text.isascii() else len(text.encode())
    if size > max_payload:
        raise PublishError(
            f"the payload of {quote_value(event.event_type)} has {size} bytes, above max_payload = {max_payload}: "
            "store it elsewhere and publish a reference, or raise max_payload"
        )
    event_id, aggregate_id = event.event_id, event.aggregate_id
    return (
        partition_of(str(event_id) if aggregate_id is None else aggregate_id),
        event_id,
        event.event_type,
        event.aggregate_type,
        aggregate_id,
        event.tenant_id,
        text,
        data,
        content_type,
        _render_headers(event, content_type if raw else None)
        if event.version or event.headers or raw or event.idempotency_key
        else None,
    )


def _locate_error(event: Event, codecs: Codecs, error: PublishError) -> PublishError:
    where = PAYLOAD_ROOT
    if event.content_type in (None, JSON) and not isinstance(event.payload, str | bytes):
        # Encode each part inside a list, because bytes alone would not be encoded as JSON.
        where = find_failing_part(event.payload, lambda part: codecs.encode([part]))
    named = f"the {PAYLOAD_ROOT}" if where == PAYLOAD_ROOT else where
    return PublishError(str(error).replace(f"the {PAYLOAD_ROOT}", f"{named} of {quote_value(event.event_type)}", 1))


def encode_events(events: list[Event], codecs: Codecs, max_payload: int) -> list[EventColumns]:
    """Encode events as the log's columns, without times. An error names the position of the first refused event."""
    if len(events) == 1:
        return [encode_event(events[0], codecs, max_payload)]
    done: list[EventColumns] = []
    try:
        for event in events:
            done.append(encode_event(event, codecs, max_payload))  # noqa: PERF401  as many as were taken, if one is refused
    except PublishError as error:
        raise PublishError(f"event {len(done)} of the list: {error}") from error
    return done


def build_publish_parameters(event: Event, fields: EventColumns) -> dict[str, Any]:
    """Return the SQL parameters of an encoded event for the INSERT of a single event."""
    # The statements are `publish` and `publish_once`.
    values: dict[str, Any] = dict(zip(UNTIMED_COLUMNS, fields, strict=True))
    values["available_at"] = event.available_at
    values["occurred_at"] = event.occurred_at
    # As seconds, because the meaning of an interval's text depends on the setting IntervalStyle.
    values["deliver_after"] = None if event.deliver_after is None else event.deliver_after.total_seconds()
    values["idempotency_key"] = event.idempotency_key
    return values


def events_to_json(events: Iterable[Event], batch: Iterable[EventColumns]) -> str:
    """Return several events as the JSON parameter of the INSERT statement for several events."""
    # The statement is `publish_several`. Columns that are null are left out.
    return orjson.dumps([*map(_build_json_columns, events, batch)]).decode()


def _build_json_columns(event: Event, fields: EventColumns) -> dict[str, Any]:
    columns = {name: value for name, value in zip(UNTIMED_COLUMNS, fields, strict=True) if value is not None}
    if "payload_bytes" in columns:
        columns["payload_bytes"] = b64encode(columns["payload_bytes"]).decode()
    if has_own_times(event):
        # As text, because orjson does not support seconds in UTC offsets.
        columns |= {name: at.isoformat() for name in TIME_COLUMNS if (at := getattr(event, name)) is not None}
        if event.deliver_after is not None:
            columns["deliver_after"] = event.deliver_after.total_seconds()
    return columns


def count_column_bytes(fields: EventColumns) -> int:
    """Return the approximate size in bytes of an encoded event's payload and headers."""
    # Only these columns may be large.
    return sum(len(fields[place] or "") for place in _LARGE_INDEXES)


def has_own_times(event: Event) -> bool:
    """Return True if the event sets its time of occurrence or of delivery."""
    # The database then cannot fill in all times.
    return event.occurred_at is not None or event.available_at is not None or event.deliver_after is not None


def add_times(events: list[Event], batch: list[EventColumns], clock: int) -> Iterator[EventColumns]:
    """Yield all columns of each event for a COPY, with its times computed from the database's clock."""
    # The clock is read first, in a round trip. A staging table would save that round trip, but would cost every
    # publisher a change of the catalog.
    # A COPY cannot evaluate expressions. `clock` is the database's time in microseconds since 1970.
    now = _EPOCH + timedelta(microseconds=clock)
    for event, fields in zip(events, batch, strict=True):
        after = event.deliver_after
        yield (*fields, event.available_at if after is None else now + after, event.occurred_at or now)


def _render_headers(event: Event, raw: str | None) -> str:
    if not (event.headers or raw or event.idempotency_key):
        return _version_header(event.version)
    own = {
        RAW_HEADER: raw,
        IDEMPOTENCY_HEADER: event.idempotency_key,
        VERSION_HEADER: event.version and str(event.version),
    }
    return orjson.dumps({**event.headers, **{name: value for name, value in own.items() if value is not None}}).decode()


@lru_cache(maxsize=256)
def _version_header(version: int) -> str:
    return orjson.dumps({VERSION_HEADER: str(version)}).decode()
