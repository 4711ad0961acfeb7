"""An event as a handler gets it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

import orjson
from typing_extensions import TypeVar as TypeVarWithDefault  # Python 3.13 has it

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
    microseconds,
)
from partbox.events.upcasts import Upcasts
from partbox.text.printing import MAX_SHOWN, visible

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

T = TypeVar("T")
Payload_co = TypeVarWithDefault("Payload_co", default=Any, covariant=True)

_VERSION = f'"{VERSION_HEADER}"'.encode()

_new_object = object.__new__

_NOT_DECODED: Any = object()
"""In the place of a payload that nobody has asked for."""


class Decoder(Protocol):
    """The part of the codecs that a delivered event needs."""

    @property
    def upcasts(self) -> Upcasts: ...

    def is_json(self, content_type: str | None) -> bool: ...

    def decode(self, data: bytes | None, content_type: str | None = None, *, raw: bool = False) -> Any: ...


class ProcessState:
    """Holds the object that the lifespan of a process yields: the `state` of all its events."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value


STATELESS = ProcessState()


class ClaimContext(NamedTuple):
    """The parts shared by all events that a process gets by one claim of a partition."""

    epoch: int
    subscription: str
    codecs: Decoder
    process: ProcessState = STATELESS


class DeliveredEvent(Generic[Payload_co]):
    """The event a handler gets. Fields are decoded on access.

    A handler that asks for a `DeliveredEvent[OrderPlaced]` gets one whose payload is an OrderPlaced. `record` is its
    row as read from the log, whose columns `partbox.events.record` names.
    """

    __slots__ = ("_claim", "_payload", "attempt", "ignored", "limit_key", "parked", "record")

    ignored: Any  # set where it has failed and that does not matter; not before, most never need it
    limit_key: Any  # at which it waits for its turn, set when its limit is known; not before, most handlers have none

    def __init__(self, record: Row, claim: ClaimContext, attempt: int = 1, parked: Any = None) -> None:
        self.record = record
        self._claim = claim
        self.attempt = attempt
        self.parked = parked
        self._payload = _NOT_DECODED

    @property
    def epoch(self) -> int:
        """The fencing number of its partition: it grows whenever the owner changes."""
        return self._claim.epoch

    @property
    def subscription(self) -> str:
        """The subscription that hands it over."""
        return self._claim.subscription

    @property
    def state(self) -> Any:
        """The object that the lifespan of this process yields; None without a lifespan."""
        return self._claim.process.value

    @property
    def partition(self) -> int:
        """0 to 255, by the hash of the aggregate id."""
        return self.record[PARTITION]  # type: ignore[no-any-return]

    @property
    def id(self) -> int:
        """The record's id: the order of the log."""
        return self.record[ID]  # type: ignore[no-any-return]

    @property
    def identity(self) -> tuple[int, bytes]:
        """Its id and event id, which distinguish it from a record that got the same id after a crash."""
        return self.record[IDENTITY]

    @property
    def route(self) -> tuple[str, str]:
        """Its event type and aggregate type, by which its handler is found."""
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
        """None means JSON."""
        return self.record[CONTENT_TYPE]  # type: ignore[no-any-return]

    @property
    def version(self) -> int:
        """The version of the class that its payload is of; 1 if the publisher gave none."""
        headers = self.record[HEADERS]
        if headers is None or _VERSION not in headers:
            return FIRST_VERSION
        given = orjson.loads(headers).get(VERSION_HEADER, FIRST_VERSION)
        try:
            return int(given)
        except (TypeError, ValueError):  # somebody's INSERT
            raise PayloadError(f"the header {VERSION_HEADER} is no number") from None

    @property
    def payload(self) -> Payload_co:
        """The payload, decoded once by the codec of the content type. Raises PayloadError if that fails."""
        if self._payload is _NOT_DECODED:
            self._payload = self.decoded()
        return cast(Payload_co, self._payload)

    def decoded(self) -> Any:
        """The payload decoded anew, which whoever asks may change. Raises PayloadError."""
        kind, data = self.record[CONTENT_TYPE], self.record[PAYLOAD]
        if data is None:
            data = self.record[PAYLOAD_BYTES]
        raw = kind is not None and RAW_HEADER in self._all_headers()
        return self._claim.codecs.decode(data, kind, raw=raw)

    def carrying(self, payload: T) -> "DeliveredEvent[T]":
        """The same event with its payload as `payload_as` gave it."""
        event: DeliveredEvent[T] = DeliveredEvent(self.record, self._claim, self.attempt, self.parked)
        event._payload = payload
        return event

    def within(self, process: ProcessState) -> "DeliveredEvent[Payload_co]":
        """Return a copy of the event in a process of this state."""
        event: DeliveredEvent[Payload_co]
        event = DeliveredEvent(self.record, self._claim._replace(process=process), self.attempt, self.parked)
        event._payload = self._payload
        return event

    @property
    def raw(self) -> bytes:
        """The payload as it is stored: the text of the JSON, or the bytes that a codec made."""
        data = self.record[PAYLOAD]
        if data is None:
            data = self.record[PAYLOAD_BYTES]
        return data if type(data) is bytes else bytes(data or b"")

    def payload_as(self, model: type[T]) -> T:
        """The payload as an instance of a dataclass, pydantic model, msgspec.Struct or attrs class, or as whatever else
        pydantic can validate. Raises PayloadError if it does not fit.

        The stored form is read: from JSON even a strict model takes texts for times, UUIDs and Decimals. One of an
        older version of an event class goes through `outbox.upcast` first; NewerVersionError if it is of a newer one.
        """
        from partbox.events.reading import read_payload  # and with it libraries that take long to load

        codecs = self._claim.codecs
        return read_payload(self, model, is_json=codecs.is_json(self.content_type), by=codecs.upcasts)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the publisher gave."""
        return _publisher_headers(self._all_headers())

    @property
    def idempotency_key(self) -> str | None:
        """The key under which the event was published, if any."""
        return self._all_headers().get(IDEMPOTENCY_HEADER)

    @property
    def had_failed(self) -> bool:
        """True if an import says that it had failed."""
        try:
            headers: object = self._all_headers()
        except ValueError:  # somebody's INSERT wrote what only PostgreSQL takes for JSON
            return False
        return isinstance(headers, dict) and FAILED_HEADER in headers

    def headers_and_own(self) -> tuple[dict[str, str], str | None, str | None]:
        """`headers`, `idempotency_key`, and the version if one was given: one text, which is decoded once here."""
        raw = self.record[HEADERS]
        if raw is None:
            return {}, None, None
        headers: dict[str, str] = orjson.loads(raw)
        key, version = headers.get(IDEMPOTENCY_HEADER), headers.get(VERSION_HEADER)
        return _publisher_headers(headers), key, version

    @property
    def available_at(self) -> datetime | None:
        """UTC; the time before which it was not to be delivered, also by `deliver_after`. None: it was not delayed."""
        return None if self.record[AVAILABLE_AT] is None else _to_datetime(self.record[AVAILABLE_AT])

    @property
    def is_delayed(self) -> bool:
        """True if it was published with `available_at` or `deliver_after`."""
        return self.record[AVAILABLE_AT] is not None

    @property
    def occurred_at(self) -> datetime:
        """UTC; the publisher's, or the database's time at publish."""
        return _to_datetime(self.record[OCCURRED_AT])

    @property
    def created_at(self) -> datetime:
        """UTC; the database's time at publish."""
        return _to_datetime(self.record[CREATED_AT])

    def __repr__(self) -> str:
        """One line, without the payload, which never goes into logs."""
        return (
            f"DeliveredEvent({self.event_type[:MAX_SHOWN]!r}, id={self.id}, "
            f"aggregate={visible(self.aggregate_type)}/{visible(str(self.aggregate_id))}, "
            f"partition={self.partition}, subscription={self.subscription!r}, attempt={self.attempt})"
        )

    def _all_headers(self) -> dict[str, str]:
        raw = self.record[HEADERS]
        return orjson.loads(raw) if raw is not None else {}


def first_deliveries(rows: Iterable[Row], claim: ClaimContext) -> list[DeliveredEvent]:
    """The events of these rows at their first attempt; a call of the class for each takes twice as long."""
    made = []
    for row in rows:
        event = _new_object(DeliveredEvent)
        event.record, event._claim, event.attempt, event.parked, event._payload = row, claim, 1, None, _NOT_DECODED
        made.append(event)
    return made


def _publisher_headers(headers: dict[str, str]) -> dict[str, str]:
    """The publisher's headers, without ours; AttributeError if others wrote them and they are not an object."""
    given = headers.items()
    for name in headers:
        if name.startswith(HEADER_PREFIX):
            return {name: value for name, value in given if not name.startswith(HEADER_PREFIX)}
    return headers


def _to_datetime(raw: bytes) -> datetime:
    """PostgreSQL's infinity, and whatever is beyond Python's years, becomes the last or first moment there is."""
    since = microseconds(raw)
    try:
        return EPOCH + timedelta(0, 0, since)
    except OverflowError:
        return (datetime.max if since > 0 else datetime.min).replace(tzinfo=UTC)
