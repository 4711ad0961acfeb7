"""Convert a row of the source table to a record, with the checks of publishing."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from partbox.codecs import JSON, Codecs
from partbox.db.operator.imports import FailedRow, SourceRow
from partbox.errors import PublishError
from partbox.events import Event
from partbox.events.checks import FAILED_HEADER, GLOBAL, NEVER_TEXT, quote_value
from partbox.events.event import NOT_GIVEN
from partbox.publish.fields import UNTIMED_COLUMNS, EventColumns, encode_event

# The largest value of PostgreSQL's type integer.
MAX_ATTEMPTS = 2**31 - 1
DEFAULT_ERROR = "the event had failed before it was imported"
TEXT_REMEDY = "; if the payload is not JSON, --set content_type=text/plain takes any text as it is"

_PARTITION, _EVENT_ID, _TEXT, _BYTES, _CONTENT_TYPE, _HEADERS = (
    UNTIMED_COLUMNS.index(name)
    for name in ("partition", "event_id", "payload", "payload_bytes", "content_type", "headers")
)

_CODECS = Codecs()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ImportRow:
    """A row of the source table, converted into an event that can be stored."""

    # The `fields` are as the database stores them. `failed_row` is set if the row becomes a dead record.

    key: str
    event: Event
    fields: EventColumns
    failed_row: FailedRow | None

    @property
    def size(self) -> int:
        """The approximate size of the event's payload in bytes."""
        return len(self.fields[_TEXT] or self.fields[_BYTES] or b"")

    @property
    def content_type(self) -> str | None:
        """The content type of the event's payload. None means JSON."""
        # The database stores it in this form.
        stored: str | None = self.fields[_CONTENT_TYPE]
        return stored


def build_import_row(found: SourceRow, max_payload: int) -> ImportRow:
    """Convert a row of the source table to an event. Raise `PublishError` if it cannot be published."""
    # The error has the reason.
    if found.event_type is None:
        raise PublishError(
            "its event_type is NULL: map another column, or give all rows one type by --set event_type=NAME"
        )
    payload, content_type = _read_payload(found)
    try:
        event = Event(
            found.event_type,
            payload,
            aggregate_type=found.aggregate_type or GLOBAL,
            aggregate_id=NOT_GIVEN if found.aggregate_id is None else found.aggregate_id,
            tenant_id=found.tenant_id,
            headers=_parse_headers(found.headers),
            event_id=_parse_event_id(found.event_id),
            occurred_at=found.occurred_at,
            available_at=None if found.has_failed else _find_available_at(found),
            content_type=content_type,
        )
        fields = encode_event(event, _CODECS, max_payload)
    except PublishError as error:
        remedy = TEXT_REMEDY if found.payload_text is not None and "cannot be written as" in str(error) else ""
        raise PublishError(f"{error}{remedy}") from None
    return ImportRow(found.key, event, fields, _build_failed(found, fields) if found.has_failed else None)


def build_copy_columns(entries: list[ImportRow], clock: int) -> Iterator[tuple[Any, ...]]:
    """Yield the values that the COPY command writes for each imported row."""
    # The values are the columns of the COPY target `publish_copy_timed`.
    # `clock` is the database's time in microseconds since 1970.
    now = _EPOCH + timedelta(microseconds=clock)
    for each in entries:
        times = each.event.available_at if each.failed_row is None else NEVER_TEXT, each.event.occurred_at or now
        yield (*(each.fields if each.failed_row is None else _mark_failed(each.fields)), *times)


def _mark_failed(fields: EventColumns) -> tuple[Any, ...]:
    headers = orjson.dumps({**orjson.loads(fields[_HEADERS] or "{}"), FAILED_HEADER: "true"}).decode()
    return (*fields[:_HEADERS], headers, *fields[_HEADERS + 1 :])


def _read_payload(found: SourceRow) -> tuple[Any, str | None]:
    """Return the payload and the content type of a row of the source table."""
    # Text is JSON and bytes are bytes, unless the content type says otherwise.
    data = found.payload_bytes
    if data is None:
        text = found.payload_json if found.payload_text is None else found.payload_text
        if text is None:
            return None, None
        data = text.encode()
        return data, JSON if found.payload_text is None else found.content_type or JSON
    return data, found.content_type


def _parse_headers(text: str | None) -> dict[str, str] | None:
    # Nulls are left out, and values other than texts are written as JSON.
    if not text:
        return None
    try:
        headers = orjson.loads(text)
    except ValueError:
        raise PublishError(
            "its headers are not JSON: map a column with a JSON object, or leave headers unmapped"
        ) from None
    if headers is None:
        return None
    if not isinstance(headers, dict):
        raise PublishError(f"its headers are a JSON {type(headers).__name__}, not an object: map another column")
    return {name: _format_value(value) for name, value in headers.items() if value is not None}


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _parse_event_id(text: str | None) -> UUID | None:
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise PublishError(
            f"its event_id {quote_value(text)} is not a UUID: leave event_id unmapped, and the event gets one"
        ) from None


def _find_available_at(found: SourceRow) -> datetime | None:
    """Return the time from which an event may be delivered. None means at once."""
    # The result is also None if that time is before the event occurred.
    due, occurred = found.available_at, found.occurred_at
    return None if due is None or (occurred is not None and due < occurred) else due


def _build_failed(found: SourceRow, fields: EventColumns) -> FailedRow:
    attempts = min(max(found.attempts or 0, 0), MAX_ATTEMPTS)
    return FailedRow(fields[_PARTITION], fields[_EVENT_ID], attempts, found.error or DEFAULT_ERROR)
