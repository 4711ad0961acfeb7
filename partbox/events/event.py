"""The event that an application publishes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Never, TypedDict, cast
from uuid import UUID

from partbox.classes import Instance
from partbox.errors import PublishError
from partbox.events import checks
from partbox.events.copying import BorrowedPayload, copy_payload
from partbox.events.declaration import declaration_of, event_type_of
from partbox.platform import uuid7
from partbox.text.wording import format_hint

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TaskFields(TypedDict, total=False):
    """The optional fields of a task's event, such as `tenant_id` and `deliver_after`."""

    aggregate_id: str | int | UUID | None
    tenant_id: str | None
    headers: Mapping[str, str] | None
    event_id: UUID | str | None
    occurred_at: datetime | None
    available_at: datetime | None
    deliver_after: timedelta | float | str | None
    idempotency_key: str | None


class EventFields(TaskFields, total=False):
    """The optional fields of an event besides its type and payload, such as its headers."""

    aggregate_type: str | Enum
    content_type: str | None
    version: int | None


NOT_GIVEN: Final[Any] = ...

_set_field: Final = object.__setattr__

# Types of payloads that are not instances of an event class.
_CLASSLESS: Final = frozenset((dict, list, str, int, float, bool, bytes, type(None)))


@dataclass(frozen=True, slots=True, init=False)
class Event:
    """An immutable event to publish, which copies its inputs. Raises PublishError for invalid fields.

    An instance of a class declared with `@partbox.event` is a complete event: the class determines the event type, the
    aggregate type and the version, and selects the aggregate id and the tenant id. Fields that are given take
    precedence. Otherwise, `payload` is any JSON value, an instance of a dataclass, pydantic model, msgspec.Struct or
    attrs class, bytes, or a value that the codec of `content_type` accepts. A str with the content type
    application/json is JSON text.

    `deliver_after` (timedelta, seconds, "5m") counts from the database's clock at publish. `available_at` is a time.
    `occurred_at` is the database's time by default. Without `aggregate_id`, the event has no order. Next to an
    `aggregate_type`, the `aggregate_id` may be left out, but must not be None, which would be the id of an object that
    is not saved yet. An int or a UUID is stored as text. Names have at most 255 characters, ids at most 8 KiB. Among
    all events with the same `idempotency_key` (1 to 255 characters), only the first is published, for as long as keys
    are kept. `version` is the version of the payload's class. Readers treat an event without a version as version 1.
    Two events are equal if all their fields are equal. The hash is the hash of `event_id`."""

    event_type: str
    payload: Any = field(repr=False)
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    headers: Mapping[str, str] = field(repr=False)
    event_id: UUID
    occurred_at: datetime | None
    available_at: datetime | None
    deliver_after: timedelta | None
    content_type: str | None
    idempotency_key: str | None
    version: int | None
    # The aggregate id was left out. `dataclasses.replace` passes it on as None.
    _without_id: bool = field(repr=False, compare=False)

    def __init__(  # noqa: PLR0913  public API: one keyword argument a field
        self,
        event_type: str | Enum | Instance,
        payload: Any = NOT_GIVEN,
        *,
        aggregate_type: str | Enum = checks.GLOBAL,
        aggregate_id: str | int | UUID | None = NOT_GIVEN,
        tenant_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        event_id: UUID | str | None = None,
        occurred_at: datetime | None = None,
        available_at: datetime | None = None,
        deliver_after: timedelta | float | str | None = None,
        content_type: str | None = None,
        idempotency_key: str | None = None,
        version: int | None = None,
        **unknown: Never,
    ) -> None:
        if payload is NOT_GIVEN:
            payload, given = (
                event_type,
                _fields_from_class(event_type, aggregate_type, aggregate_id, tenant_id, version),
            )
            event_type, aggregate_type, aggregate_id, tenant_id, version = given
        without_id = (bool(unknown) and _without_id(unknown) and aggregate_id is None) or aggregate_id is NOT_GIVEN
        _set_field(self, "event_type", checks.check_name("event_type", cast(str | Enum, event_type)))
        _set_field(self, "payload", copy_payload(payload, self.event_type))
        _set_field(self, "aggregate_type", checks.check_name("aggregate_type", aggregate_type))
        own = None if without_id else aggregate_id
        _set_field(
            self, "aggregate_id", _check_unordered(self, without_id) if own is None else checks.check_aggregate_id(own)
        )
        _set_field(self, "_without_id", without_id)
        _set_field(self, "tenant_id", None if tenant_id is None else checks.check_tenant(tenant_id))
        _set_field(self, "headers", checks.check_headers(headers) if headers else checks.NO_HEADERS)
        _set_field(self, "event_id", uuid7() if event_id is None else checks.check_uuid(event_id))
        _set_field(self, "occurred_at", checks.check_time("occurred_at", occurred_at))
        _set_field(self, "available_at", checks.check_time("available_at", available_at))
        _set_field(self, "deliver_after", None if deliver_after is None else checks.check_delay(deliver_after))
        _set_field(
            self, "content_type", None if content_type is None else checks.check_name("content_type", content_type)
        )
        _set_field(self, "idempotency_key", None if idempotency_key is None else checks.check_key(idempotency_key))
        _set_field(self, "version", _version_of(self) if version is None else checks.check_version(version))
        if available_at is not None:
            _check_times(self)

    def __hash__(self) -> int:
        # The hash is the hash of the event's id alone, because a payload may not be hashable.
        return hash(self.event_id)

    def with_headers(self, more: Mapping[str, str]) -> "Event":
        """Return a copy of the event with additional headers. Raise PublishError if the headers are invalid.

        The additional headers do not count against the limit. Headers that the event already has stay."""
        same = object.__new__(Event)
        for name in self.__slots__:
            _set_field(same, name, getattr(self, name))
        _set_field(same, "headers", MappingProxyType({**checks.check_headers(more), **self.headers}))
        return same

    @property
    def is_delayed(self) -> bool:
        """True if the event is delivered later, by its `available_at` or `deliver_after`."""
        return self.available_at is not None or self.deliver_after is not None


def _without_id(unknown: Mapping[str, Any]) -> bool:
    """Return True if the event that `dataclasses.replace` copies was created without an aggregate id."""
    # PublishError is raised for any other unknown keyword.
    for name in unknown.keys() - {"_without_id"}:
        raise PublishError(
            f"an event has no field {checks.quote_value(name)}: {format_hint(name, EventFields.__annotations__)}"
        )
    return bool(unknown["_without_id"])


def _fields_from_class(
    given: Any, aggregate_type: str | Enum, aggregate_id: Any, tenant_id: str | None, version: int | None
) -> tuple[Any, ...]:
    """Return the type, ids and version of an event, with missing values taken from the declaration of its class."""
    # The fields are the type, aggregate type, aggregate id, tenant id and version. Given fields take precedence over
    # the class.
    event = given.payload if type(given) is BorrowedPayload else given
    if isinstance(event, str | Enum):
        raise PublishError(f"{event!r} has no payload: give one (None is JSON null), or an Event")
    declared = declaration_of(event)
    if aggregate_type == checks.GLOBAL:
        aggregate_type = declared.aggregate_type
    if aggregate_id is NOT_GIVEN and declared.key is not None:
        aggregate_id = declared.read_aggregate_id(event)
    if tenant_id is None and declared.tenant is not None:
        tenant_id = declared.read_tenant_id(event)
    return declared.name, aggregate_type, aggregate_id, tenant_id, version or declared.version


def _version_of(event: Event) -> int | None:
    """Return the declared version of the payload's class, or None if it is not declared for the event's type."""
    cls = type(event.payload)
    declared = None if cls in _CLASSLESS else event_type_of(cls)
    return declared.version if declared is not None and declared.name == event.event_type else None


def _check_unordered(event: Event, without_id: bool) -> str | None:
    """Raise PublishError if None was given as the aggregate id next to an aggregate type, else return None."""
    # None is the aggregate id of an event without order.
    # PublishError is raised if None was given next to an aggregate type.
    if not without_id and event.aggregate_type != checks.GLOBAL:
        raise PublishError(
            f"aggregate_id is None, and aggregate_type is {checks.quote_value(event.aggregate_type)}: flush "
            "first, so that "
            "the object has its id; for an event without order leave aggregate_id out"
        )
    return None


def _check_times(event: Event) -> None:
    if event.deliver_after is not None:
        raise PublishError("available_at and deliver_after are both given: keep one of them")
    # Compare lengths of time. Python compares two datetimes of one zone by their local clock times, which repeat in
    # autumn.
    due = event.available_at - _EPOCH  # type: ignore[operator]
    if event.occurred_at is not None and due < event.occurred_at - _EPOCH:
        raise PublishError(
            f"available_at {event.available_at} is before occurred_at {event.occurred_at}: make it the same or later"
        )
    if event.occurred_at is None and due < datetime.now(UTC) - _EPOCH - checks.CLOCK_TOLERANCE:
        raise PublishError(
            f"available_at {event.available_at} is past, and the event occurs now: leave it out to have the event "
            "delivered at once, or give occurred_at too"
        )
