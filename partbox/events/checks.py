"""Checks of the fields of an event. Each function returns the field as it is stored, or raises PublishError."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from types import MappingProxyType
from typing import Final
from uuid import UUID

from partbox.duration import seconds
from partbox.errors import PublishError

GLOBAL: Final = "__GLOBAL__"  # the aggregate type of an event that names none
TASK: Final = "partbox-task"  # the aggregate type of a task's events
# Headers with this prefix do not belong to the publisher and are not shown among an event's headers.
HEADER_PREFIX: Final = "partbox-"

IDEMPOTENCY_HEADER: Final = HEADER_PREFIX + "idempotency-key"
# The version of the payload's class; see `partbox.events.declaration`.
VERSION_HEADER: Final = HEADER_PREFIX + "version"
# The payload is bytes that no codec has encoded; see `partbox.codecs`.
RAW_HEADER: Final = HEADER_PREFIX + "raw"
# An import sets this header, together with `NEVER_AVAILABLE`, for an event that had failed. Only both together mean
# that the event is dead from the start.
FAILED_HEADER: Final = HEADER_PREFIX + "failed"

# `available_at` of a record that had failed when it was imported, in microseconds since 2000 and as text. This is the
# last finite time of PostgreSQL. Publishers may give it, too.
NEVER_AVAILABLE: Final = 9_223_371_331_199_999_999
NEVER_TEXT: Final = "294276-12-31 23:59:59.999999Z"

MAX_NAME: Final = 255  # characters of an event type, an aggregate type or a content type
MAX_ID: Final = 8_192  # bytes of an aggregate id or a tenant id
MAX_HEADERS: Final = 65_536  # bytes of all names and values together
MAX_KEY: Final = 255  # characters
MAX_VERSION: Final = 2**31 - 1
MAX_DELAY: Final = timedelta(days=36_500)
# How far in the past `available_at` may be. Clocks differ, and a transaction takes time after it has read a clock.
CLOCK_TOLERANCE: Final = timedelta(minutes=1)
MAX_QUOTE: Final = 100  # characters
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def check_text(name: str, value: str, *, secret: bool = False) -> str:
    """Return the text unchanged. Raise PublishError if the value is no text, or PostgreSQL cannot store it."""
    # The error does not quote a `secret` value.
    if isinstance(value, str) and value.isascii() and "\0" not in value:
        return value
    problem = _find_problem(value)
    if problem:
        raise PublishError(f"{name} {problem}" if secret else f"{name} {quote_value(value)} {problem}")
    return value


def quote_value(value: object) -> str:
    """Return a short, printable form of a value for a one-line error message."""
    # The form is Python's, in ASCII.
    try:
        written = ascii(value[:MAX_QUOTE] if isinstance(value, str) else value)
    except ValueError:
        # Python refuses to write an integer with very many digits.
        written = "a number with very many digits"
    written = written if written.isprintable() else ascii(written)
    cut = len(written) > MAX_QUOTE or (isinstance(value, str) and len(value) > MAX_QUOTE)
    return f"{written[:MAX_QUOTE]}…" if cut else written


def _find_problem(value: object) -> str | None:
    if isinstance(value, type):
        return "is a class, not a str: give a text"
    if not isinstance(value, str):
        return f"is a {type(value).__name__}, not a str: convert it"
    if "\0" in value:
        return "holds a NUL character, which PostgreSQL cannot store: remove it"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "holds a lone surrogate, which is not valid text: decode it properly"
    return None


def check_id_size(name: str, value: str) -> str:
    """Return the id unchanged. Raise PublishError if it has more than MAX_ID bytes."""
    if len(value) * 4 > MAX_ID and (size := len(value.encode())) > MAX_ID:
        raise PublishError(f"{name} {quote_value(value)} has {size} bytes, above {MAX_ID}: hash what is longer")
    return value


def check_aggregate_id(value: str | int | UUID) -> str:
    """Return an aggregate id as text. Raise PublishError if it is invalid or longer than MAX_ID bytes."""
    # An aggregate id is the key of the events that stay in order.
    # Fast path for nearly all events. A character takes at most four bytes.
    if type(value) is str and len(value) * 4 <= MAX_ID:
        return check_text("aggregate_id", value)
    return check_id_size("aggregate_id", check_identity("aggregate_id", value))


def check_tenant(value: str) -> str:
    return check_id_size("tenant_id", check_text("tenant_id", value))


def check_name(field: str, value: str | Enum) -> str:
    """Return a name, such as an event type, as text. Raise PublishError if it is empty or longer than MAX_NAME."""
    # Other examples are an aggregate type or a content type.
    # Fast path for nearly all events.
    if type(value) is str and 0 < len(value) <= MAX_NAME:
        return check_text(field, value)
    named = check_kind(field, value)
    if len(named) > MAX_NAME:
        raise PublishError(f"{field} {quote_value(named)} has {len(named)} characters, above {MAX_NAME}: shorten it")
    return named


def check_identity(name: str, value: str | int | UUID) -> str:
    """Convert an id into text. Raise PublishError if it is not a str, int or UUID."""
    # An int or a UUID is converted to its text.
    if isinstance(value, str):
        return check_text(name, value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            # An int subclass such as an Enum becomes its digits.
            return str(int(value))
        except ValueError:
            raise PublishError(f"{name} is {quote_value(value)}: give it as text") from None
    raise PublishError(f"{name} {quote_value(value)} is a {type(value).__name__}, not a str, int or UUID: convert it")


def check_kind(name: str, value: str | Enum) -> str:
    """Return a name, such as an event type, as text. Raise PublishError if it is empty or invalid."""
    # An Enum stands for its value if that is a str, and for its name otherwise.
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    if value == "":
        raise PublishError(f"{name} is empty: name it")
    return check_text(name, value)


def check_key(value: str) -> str:
    if 1 <= len(check_text("idempotency_key", value)) <= MAX_KEY:
        return value
    remedy = "hash what is longer" if value else "leave it out, or give one"
    raise PublishError(f"idempotency_key must have 1 to {MAX_KEY} characters, not {len(value)}: {remedy}")


def check_version(value: int) -> int:
    if type(value) is int and 1 <= value <= MAX_VERSION:
        return value
    raise PublishError(f"version must be a whole number from 1 to {MAX_VERSION}, not {quote_value(value)}")


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    try:
        copied = dict(headers)
    except (TypeError, ValueError):
        raise PublishError(f"headers must be a mapping of texts, not {quote_value(headers)}: give a dict") from None
    for name, value in copied.items():
        if check_text("a header's name", name).lower().startswith(HEADER_PREFIX):
            raise PublishError(
                f"header {quote_value(name)} begins with {HEADER_PREFIX!r}, which partbox keeps for itself: rename it"
            )
        check_text(f"header {quote_value(name)}", value, secret=True)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in copied.items())
    if size > MAX_HEADERS:
        raise PublishError(f"the headers have {size} bytes together, above {MAX_HEADERS}: move them into the payload")
    return MappingProxyType(copied)


def check_uuid(value: UUID | str) -> UUID:
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            pass
    raise PublishError(
        f"event_id {quote_value(value)} is a {type(value).__name__} and no UUID: give a uuid.UUID or its text"
    )


def check_time(name: str, value: datetime | None) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise PublishError(f"{name} must be a datetime, not {type(value).__name__} {quote_value(value)}: convert it")
    if value.utcoffset() is None:
        raise PublishError(f"{name} {value.isoformat()} has no time zone: give it one, such as datetime.UTC")
    return value


def check_delay(value: timedelta | float | str) -> timedelta:
    """Convert an event's delay into a timedelta. Raise PublishError unless it is above 0 and at most MAX_DELAY."""
    if isinstance(value, bool) or not isinstance(value, timedelta | int | float | str):
        remedy = ": give a time as available_at" if isinstance(value, datetime) else ""
        raise PublishError(
            f'deliver_after must be a timedelta, seconds or a text such as "5m", not {type(value).__name__} '
            f"{quote_value(value)}{remedy}"
        )
    try:
        length = seconds(value) if isinstance(value, str) else value
    except ValueError as error:
        raise PublishError(f"deliver_after {quote_value(value)} is no length of time: {error}") from None
    length = length.total_seconds() if isinstance(length, timedelta) else length
    # A nanosecond would be rounded to nothing, and NaN fails every comparison.
    if not 1e-6 <= length <= MAX_DELAY.total_seconds():
        raise PublishError(f"deliver_after must be above 0 and at most {MAX_DELAY.days} days, not {quote_value(value)}")
    return value if isinstance(value, timedelta) else timedelta(seconds=length)
