"""The event that a handler receives."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

import orjson

# The `default` parameter is in `typing` from Python 3.13 on.
from typing_extensions import TypeVar as TypeVarWithDefault

from partbox.errors import PayloadError
from partbox.events.checks import FAILED_HEADER, HEADER_PREFIX, IDEMPOTENCY_HEADER, RAW_HEADER, VERSION_HEADER
from partbox.events.declaration import FIRST_VERSION
from partbox.events.record import (
    AGGREGATE_ID,
    AGGREGATE_TYPE,
    AVAILABLE_AT,
    CONTENT_TYPE,
    CREATED_AT,
    EVENT_ID,
    EVENT_TYPE,
    HEADERS,
    ID,
    IDENTITY,
    OCCURRED_AT,
    PARTITION,
    PAYLOAD,
    PAYLOAD_BYTES,
    ROUTE,
    TENANT_ID,
    Row,
    parse_microseconds,
)
from partbox.events.upcasts import Upcasts
from partbox.text.printing import MAX_SHOWN, make_visible

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

T = TypeVar("T")
Payload_co = TypeVarWithDefault("Payload_co", default=Any, covariant=True)

_VERSION = f'"{VERSION_HEADER}"'.encode()

_new_object = object.__new__

# The placeholder for a payload that has not been decoded yet.
_NOT_DECODED: Any = object()


class Decoder(Protocol):
    """The interface through which a delivered event decodes its payload."""

    @property
    def upcasts(self) -> Upcasts: ...

    def is_json(self, content_type: str | None) -> bool: ...

    def decode(self, data: bytes | None, content_type: str | None = None, *, raw: bool = False) -> Any: ...


class ProcessState:
    """A holder of the object, such as a connection pool, that the startup code of a worker process yields."""

    # The startup code is the lifespan. Events offer the object as `state`.

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value


STATELESS = ProcessState()


class ClaimContext(NamedTuple):
    """The values shared by all events that a process receives while it owns a partition, such as the subscription."""

    epoch: int
    subscription: str
    codecs: Decoder
    process: ProcessState = STATELESS


class DeliveredEvent(Generic[Payload_co]):
    """The event that a handler receives."""

    # Fields are decoded on access. A `DeliveredEvent[OrderPlaced]` has an OrderPlaced as payload. `record` is the row
    # as read from the log, with the columns of `partbox.events.record`.

    __slots__ = ("_claim", "_payload", "attempt", "ignored", "limit_keys", "parked", "record")

    # Set when the event has failed and its error does not matter. Unset before, because most events never need it.
    ignored: Any
    # The values by which limits and circuits divide the event, set when its handler is known to have any. Most handlers
    # have none.
    limit_keys: Any

    def __init__(self, record: Row, claim: ClaimContext, attempt: int = 1, parked: Any = None) -> None:
        self.record = record
        self._claim = claim
        self.attempt = attempt
        self.parked = parked
        self._payload = _NOT_DECODED

    @property
    def epoch(self) -> int:
        """The number of the period of ownership, which grows whenever another process takes over the partition."""
        # This is the fencing number of the partition.
        return self._claim.epoch

    @property
    def subscription(self) -> str:
        """The name of the subscription that delivers the event."""
        return self._claim.subscription

    @property
    def state(self) -> Any:
        """The object that the startup code (lifespan) of this process yields, such as a connection pool, or None."""
        return self._claim.process.value

    @property
    def partition(self) -> int:
        """The partition of the event, 0 to 255, by the hash of its aggregate id."""
        return self.record[PARTITION]  # type: ignore[no-any-return]

    @property
    def id(self) -> int:
        """The id of the event's record in the log. The log is ordered by these ids."""
        return self.record[ID]  # type: ignore[no-any-return]

    @property
    def identity(self) -> tuple[int, bytes]:
        """The record id and the event id, which together identify the event's row in the log."""
        # A record that gets the same id after a crash has another event id.
        return self.record[IDENTITY]

    @property
    def route(self) -> tuple[str, str]:
        """The event type and the aggregate type, by which the event's handler is chosen."""
        return self.record[ROUTE]

    @property
    def event_id(self) -> UUID:
        return UUID(bytes=bytes(self.record[EVENT_ID]))

    @property
    def event_type(self) -> str:
        return self.record[EVENT_TYPE]  # type: ignore[no-any-return]

    @property
    def aggregate_type(self) -> str:
        return self.record[AGGREGATE_TYPE]  # type: ignore[no-any-return]

    @property
    def aggregate_id(self) -> str | None:
        return self.record[AGGREGATE_ID]  # type: ignore[no-any-return]

    @property
    def tenant_id(self) -> str | None:
        return self.record[TENANT_ID]  # type: ignore[no-any-return]

    @property
    def content_type(self) -> str | None:
        """The content type of the payload. None means JSON."""
        return self.record[CONTENT_TYPE]  # type: ignore[no-any-return]

    @property
    def version(self) -> int:
        """The version of the payload's class, or 1 if the publisher gave none."""
        headers = self.record[HEADERS]
        if headers is None or _VERSION not in headers:
            return FIRST_VERSION
        given = orjson.loads(headers).get(VERSION_HEADER, FIRST_VERSION)
        try:
            return int(given)
        except (TypeError, ValueError):
            # The record was not written by partbox, but by an INSERT of the application.
            raise PayloadError(f"the header {VERSION_HEADER} is no number") from None

    @property
    def payload(self) -> Payload_co:
        """The payload, decoded once by the codec of its content type. Raises PayloadError if decoding fails."""
        if self._payload is _NOT_DECODED:
            self._payload = self.decode_payload()
        return cast(Payload_co, self._payload)

    def decode_payload(self) -> Any:
        """Decode and return the payload. Raise PayloadError if decoding fails."""
        # Each call decodes the payload anew, so the caller may change the result.
        kind, data = self.record[CONTENT_TYPE], self.record[PAYLOAD]
        if data is None:
            data = self.record[PAYLOAD_BYTES]
        raw = kind is not None and RAW_HEADER in self._decode_headers()
        return self._claim.codecs.decode(data, kind, raw=raw)

    def with_payload(self, payload: T) -> "DeliveredEvent[T]":
        """Return a copy of the event with another payload."""
        # The payload is the result of `payload_as`.
        event: DeliveredEvent[T] = DeliveredEvent(self.record, self._claim, self.attempt, self.parked)
        event._payload = payload
        return event

    def with_process(self, process: ProcessState) -> "DeliveredEvent[Payload_co]":
        """Return a copy of the event that offers handlers the `state` of the given worker process."""
        event: DeliveredEvent[Payload_co]
        event = DeliveredEvent(self.record, self._claim._replace(process=process), self.attempt, self.parked)
        event._payload = self._payload
        return event

    @property
    def raw(self) -> bytes:
        """The payload as stored: the text of the JSON, or the bytes that a codec encoded."""
        data = self.record[PAYLOAD]
        if data is None:
            data = self.record[PAYLOAD_BYTES]
        return data if type(data) is bytes else bytes(data or b"")

    def payload_as(self, model: type[T]) -> T:
        """Return the payload as an instance of a dataclass, pydantic model, msgspec.Struct or attrs class.

        `model` can also be another type that pydantic can validate. From JSON, even a strict model accepts texts for
        times, UUIDs and Decimals. A payload of an older version is first converted by `outbox.upcast`. Raise
        PayloadError if the payload does not fit, and NewerVersionError if its version is newer than the class."""
        # Imported late, because the libraries behind it take long to load.
        from partbox.events.reading import read_payload

        codecs = self._claim.codecs
        return read_payload(self, model, is_json=codecs.is_json(self.content_type), by=codecs.upcasts)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the publisher gave."""
        return _select_publisher_headers(self._decode_headers())

    @property
    def idempotency_key(self) -> str | None:
        """The idempotency key under which the event was published, or None."""
        return self._decode_headers().get(IDEMPOTENCY_HEADER)

    @property
    def had_failed(self) -> bool:
        """True if the event was imported and had already failed before the import."""
        try:
            headers: object = self._decode_headers()
        except ValueError:
            # An INSERT of the application wrote a text that PostgreSQL, but not orjson, accepts as JSON.
            return False
        return isinstance(headers, dict) and FAILED_HEADER in headers

    def split_headers(self) -> tuple[dict[str, str], str | None, str | None]:
        """Return the publisher's headers, the idempotency key and the payload version from the stored headers."""
        # The key and the version may be None.
        # The stored text is decoded only once.
        raw = self.record[HEADERS]
        if raw is None:
            return {}, None, None
        headers: dict[str, str] = orjson.loads(raw)
        key, version = headers.get(IDEMPOTENCY_HEADER), headers.get(VERSION_HEADER)
        return _select_publisher_headers(headers), key, version

    @property
    def available_at(self) -> datetime | None:
        """The time (UTC) before which the event is not delivered, or None without a delay."""
        # `deliver_after` also sets it.
        return None if self.record[AVAILABLE_AT] is None else _to_datetime(self.record[AVAILABLE_AT])

    @property
    def is_delayed(self) -> bool:
        """True if the event was published with `available_at` or `deliver_after`."""
        return self.record[AVAILABLE_AT] is not None

    @property
    def occurred_at(self) -> datetime:
        """The time (UTC) at which the event occurred, by default the database's time when it was published."""
        # The publisher may give another time.
        return _to_datetime(self.record[OCCURRED_AT])

    @property
    def created_at(self) -> datetime:
        """The database's time (UTC) at which the event was published."""
        return _to_datetime(self.record[CREATED_AT])

    def __repr__(self) -> str:
        # Payloads must never appear in logs.
        return (
            f"DeliveredEvent({self.event_type[:MAX_SHOWN]!r}, id={self.id}, "
            f"aggregate={make_visible(self.aggregate_type)}/{make_visible(str(self.aggregate_id))}, "
            f"partition={self.partition}, subscription={self.subscription!r}, attempt={self.attempt})"
        )

    def _decode_headers(self) -> dict[str, str]:
        raw = self.record[HEADERS]
        return orjson.loads(raw) if raw is not None else {}


def build_first_deliveries(rows: Iterable[Row], claim: ClaimContext) -> list[DeliveredEvent]:
    """Convert rows of the log into the events that handlers receive at the first attempt."""
    # Calling the class for each row would take twice as long.
    made = []
    for row in rows:
        event = _new_object(DeliveredEvent)
        event.record, event._claim, event.attempt, event.parked, event._payload = row, claim, 1, None, _NOT_DECODED
        made.append(event)
    return made


def _select_publisher_headers(headers: dict[str, str]) -> dict[str, str]:
    # The headers that partbox itself adds are left out. AttributeError is raised if another program wrote the headers
    # and they are not a JSON object.
    given = headers.items()
    for name in headers:
        if name.startswith(HEADER_PREFIX):
            return {name: value for name, value in given if not name.startswith(HEADER_PREFIX)}
    return headers


def _to_datetime(raw: bytes) -> datetime:
    # Infinity, and years that Python does not support, become the last or first moment of `datetime`.
    since = parse_microseconds(raw)
    try:
        return EPOCH + timedelta(0, 0, since)
    except OverflowError:
        return (datetime.max if since > 0 else datetime.min).replace(tzinfo=UTC)
