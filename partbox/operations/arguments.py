"""Checks of the arguments of operator commands. Each function returns its argument in the form that the database layer
takes, or raises ArgumentError or PartboxError with the argument's name, its value and the fix."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final, NamedTuple, TypeGuard
from uuid import UUID

from partbox.classes import Instance
from partbox.duration import seconds
from partbox.errors import PartboxError, PublishError
from partbox.events import checks
from partbox.events.declaration import event_type_of, type_name_of

MAX_BIGINT: Final = (1 << 63) - 1
DIGITS: Final = len(str(MAX_BIGINT))
MAX_NAME_LENGTH: Final = 100  # characters of a subscription's name
GROUP_PATTERN: Final = re.compile(rf"-?[0-9]{{1,{DIGITS}}}")

Id = int | str | UUID
AggregateId = str | int | UUID
Length = timedelta | float | str
Bound = datetime | Length
Moment = datetime | str


class ArgumentError(PartboxError):
    """An error for an invalid argument of an operator command.

    A command line replaces `name`, the name in Python, by its own option."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name} {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type["ArgumentError"], tuple[str, str]]:
        # By default pickle would call the class with the message alone.
        return ArgumentError, (self.name, self.reason)


def _is_whole(value: object, least: int = 1) -> TypeGuard[int]:
    # A bool is no number here, and the largest number is PostgreSQL's largest bigint.
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_BIGINT


def check_limit(value: int) -> int:
    if not _is_whole(value):
        raise ArgumentError("limit", f"{value!r} must be a whole number above 0")
    return value


def has_own_loop(value: object) -> bool:
    """Return True if the argument `loop` asks for a separate event loop for async handlers, or False if it is None."""
    # The argument is `loop="own"` then.
    # None runs them in the loop that enters the worker. Any other value is refused.
    if value not in (None, "own"):
        raise PartboxError(
            f"loop = {value!r} is invalid: give 'own', or nothing for the event loop that enters `async with`"
        )
    return value == "own"


def check_count(name: str, value: int | None, default: int) -> int:
    """Return a number of processes or concurrent handlers, or `default` for None. Raise PartboxError if it is
    invalid."""
    # PartboxError is raised unless the number is whole and at least 1.
    if value is not None and not _is_whole(value):
        raise PartboxError(f"{name} = {value!r} is invalid: give a whole number from 1")
    return default if value is None else value


def check_after(value: int | None) -> int | None:
    """Validate the record id after which a page of a listing begins. None means the first page."""
    if value is not None and not _is_whole(value, 0):
        raise ArgumentError("after", f"{value!r} must be the last record id of the page before")
    return value


def parse_length(name: str, value: Length) -> float:
    """Convert a duration such as a timedelta or "2h" to seconds. Raise ArgumentError if it is invalid."""
    # The error has the argument's name.
    try:
        return seconds(value)
    except ValueError as error:
        raise ArgumentError(name, f"{value!r} is no length of time: {error}") from None


def parse_bound(name: str, value: Bound | None) -> datetime | float | None:
    """Convert an end of a time range to a datetime, or a duration such as "2h" to a number of seconds ago."""
    # A datetime must have a time zone. None is returned as None.
    if value is None:
        return None
    with suppress(ValueError):
        return seconds(value)
    return _require_zone(name, value, f'{value!r} is no time: write it in ISO 8601, or "2h" for two hours ago')


def _apply_rule(check: Callable[[str, Any], str], name: str, value: object) -> str:
    try:
        return check(name, value)
    except PublishError as error:
        raise ArgumentError(name, str(error).removeprefix(f"{name} ")) from None


def check_kind(name: str, value: str | Enum) -> str:
    """Validate an event type or aggregate type and return it as text. Raise ArgumentError if it is invalid."""
    # The same types are accepted as in publishing.
    return _apply_rule(checks.check_kind, name, value)


def event_type_name(name: str, value: str | Enum | type[Instance]) -> str:
    """Return the name of an event type, which is given as text or as a class with `@partbox.event`."""
    return _apply_rule(type_name_of, name, value)


def check_aggregate_id(value: AggregateId) -> str:
    # The same ids are accepted as in publishing.
    try:
        return checks.check_identity("aggregate_id", value)
    except PublishError as error:
        raise PartboxError(str(error)) from None


def check_text(name: str, value: str) -> str:
    """Return a text unchanged. Raise ArgumentError if PostgreSQL cannot store it."""
    return _apply_rule(checks.check_text, name, value)


def parse_group(value: int | str) -> int:
    """Convert the number of a group of dead records to an int. Raise PartboxError if it is invalid."""
    # The number may be negative. The message shows at most 40 characters of a string and nothing of any other value.
    number = int(value) if isinstance(value, str) and GROUP_PATTERN.fullmatch(value) else value
    if not _is_whole(number, -MAX_BIGINT - 1):
        reason = repr(value[:40]) if isinstance(value, str) else "given"
        raise PartboxError(f"group {reason} must be the number of a group of dead records")
    return number


def parse_record_or_event(value: Id) -> int | UUID:
    """Parse an id: return an int for a record id, a UUID for an event id. Raise PartboxError for anything else."""
    # The id may be a number, a string or a UUID.
    match value:
        case UUID():
            return value
        case bool():
            pass
        case int() if 1 <= value <= MAX_BIGINT:
            return value
        case str() if value.isascii() and value.isdecimal() and len(value) <= DIGITS:
            return parse_record_or_event(int(value))
        case str():
            try:
                return UUID(value)
            except ValueError:
                pass
    raise PartboxError(f"{value!r} is neither a record id, such as 42, nor an event id, a UUID")


class StartPosition(NamedTuple):
    """The start of a new subscription in the log: the beginning, a publishing time, or now if neither field is set."""

    beginning: bool
    since: datetime | None


class ReplayPosition(NamedTuple):
    """The position from which a subscription delivers events again: a record id or a time."""

    from_id: int | None
    from_time: datetime | None

    def __str__(self) -> str:
        return f"record {self.from_id}" if self.from_time is None else self.from_time.isoformat()


def check_subscription_name(value: str) -> str:
    """Validate the name of a new subscription and return it. Raise ArgumentError if it is invalid."""
    # A name has at most 100 printable characters, without blanks at either end.
    check_kind("subscription", value)
    if len(value) > MAX_NAME_LENGTH:
        raise ArgumentError(
            "subscription", f"{value[:20]!a}… has {len(value)} characters, above {MAX_NAME_LENGTH}: shorten it"
        )
    if not value.isprintable() or value != value.strip():
        raise ArgumentError(
            "subscription", f"{value!a} begins or ends with a blank, or holds control characters: rename it"
        )
    return value


def check_event_types(values: Iterable[str | Enum | type[Instance]] | None) -> list[str] | None:
    """Validate the event types that a new subscription is limited to, and return them sorted. None means all types."""
    # Duplicates are removed.
    if values is None:
        return None
    if isinstance(values, str | Enum) or event_type_of(values) is not None:
        raise ArgumentError("types", f"{values!r} is one type: give a list, [{values!r}]")
    if not isinstance(values, Iterable):
        raise ArgumentError("types", f"{values!r} must be a list of event types")
    found = sorted({event_type_name("type", each) for each in values})
    if not found:
        raise ArgumentError(
            "types", "is empty, so nothing would ever be delivered: name some types, or leave it out for all types"
        )
    return found


def parse_time(what: str, value: Moment) -> datetime:
    """Parse a time from a datetime or ISO 8601 text. Raise ArgumentError if it is invalid or has no time zone."""
    # `what` names the value in the error.
    if not isinstance(value, str | datetime):
        raise ArgumentError(what, f"must be a datetime, not {type(value).__name__} {value!r}: convert it")
    return _require_zone(what, value, f"{value!r} is no time: write it in ISO 8601, such as 2026-01-31T09:00:00Z")


def _require_zone(name: str, value: object, otherwise: str) -> datetime:
    when = value
    with suppress(ValueError):
        when = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(when, datetime):
        raise ArgumentError(name, otherwise)
    if when.utcoffset() is None:
        raise ArgumentError(name, f"{value!s} has no time zone: give it one, such as {when.isoformat()}Z for UTC")
    return when


def parse_start_position(value: Moment) -> StartPosition:
    """Parse the start position of a new subscription: "beginning", "now" or a time."""
    if value in ("beginning", "now"):
        return StartPosition(value == "beginning", None)
    try:
        return StartPosition(False, parse_time("start", value))
    except ArgumentError as error:
        raise ArgumentError(error.name, f'{error.reason}; or "beginning", or "now"') from None


def build_replay_position(from_id: int | None, from_time: Moment | None) -> ReplayPosition:
    """Build the position from which to replay from a record id or a time. Exactly one of them must be given."""
    if (from_id is None) == (from_time is None):
        raise PartboxError(f"from_id {from_id!r}, from_time {from_time!r}: give one of the two")
    if from_time is not None:
        return ReplayPosition(None, parse_time("from_time", from_time))
    if not _is_whole(from_id):
        raise ArgumentError(
            "from_id", f"{from_id!r} is no record id: record ids are whole numbers from 1 to {MAX_BIGINT}"
        )
    return ReplayPosition(from_id, None)


def parse_position(text: str) -> ReplayPosition:
    """Parse a replay position from command-line text: digits are a record id, anything else is a time."""
    if not (text.isascii() and text.isdecimal()):
        return build_replay_position(None, text)
    # int() of thousands of digits is slow, and refused by Python above a limit.
    return build_replay_position(int(text) if len(text) <= DIGITS else MAX_BIGINT + 1, None)
