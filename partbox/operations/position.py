"""An operator's arguments about a subscription: its name, its types, and a position in the log. Each function returns
the value as it is meant, or raises PartboxError with the value and the remedy."""

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from partbox.errors import PartboxError
from partbox.operations import arguments as asked

LONGEST: Final = 100
EXAMPLE: Final = "2026-01-31T09:00:00Z"

Moment = datetime | str


class StartPosition(NamedTuple):
    """The position at which a new subscription starts: the beginning, a time, or (neither) now."""

    beginning: bool
    since: datetime | None


class ReplayPosition(NamedTuple):
    """The position at which a replay starts: one of the two."""

    from_id: int | None
    from_time: datetime | None

    def __str__(self) -> str:
        return f"record {self.from_id}" if self.from_time is None else self.from_time.isoformat()


def name(value: str) -> str:
    """The name of a new subscription."""
    asked.kind("subscription", value)
    if len(value) > LONGEST:
        raise asked.ArgumentError(
            "subscription", f"{value[:20]!a}… has {len(value)} characters, above {LONGEST}: shorten it"
        )
    if not value.isprintable() or value != value.strip():
        raise asked.ArgumentError(
            "subscription", f"{value!a} begins or ends with a blank, or holds control characters: rename it"
        )
    return value


def types(values: Iterable[str | Enum] | None) -> list[str] | None:
    """The event types that are wanted; None = all."""
    if values is None:
        return None
    if isinstance(values, str | Enum):
        raise asked.ArgumentError("types", f"{values!r} is one type: give a list, [{values!r}]")
    found = sorted({asked.kind("type", each) for each in values})
    if not found:
        raise asked.ArgumentError(
            "types", "is empty, so nothing would ever be delivered: name some, or leave it out for all"
        )
    return found


def moment(what: str, value: Moment) -> datetime:
    """A time with its zone, as datetime or in ISO 8601."""
    try:
        when = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise asked.ArgumentError(what, f"{value!r} is no time: write it in ISO 8601, such as {EXAMPLE}") from None
    if not isinstance(when, datetime):
        raise asked.ArgumentError(what, f"must be a datetime, not {type(when).__name__} {when!r}: convert it")
    if when.utcoffset() is None:
        raise asked.ArgumentError(what, f"{value!s} has no time zone: give it one, such as {when.isoformat()}Z for UTC")
    return when


def start(value: Moment) -> StartPosition:
    """ "beginning", "now" or a time."""
    if value in ("beginning", "now"):
        return StartPosition(value == "beginning", None)
    try:
        return StartPosition(False, moment("start", value))
    except asked.ArgumentError as error:
        raise asked.ArgumentError(error.name, f'{error.said}; or "beginning", or "now"') from None


def point(from_id: int | None, from_time: Moment | None) -> ReplayPosition:
    """A record id, or a time."""
    if (from_id is None) == (from_time is None):
        raise PartboxError(f"from_id {from_id!r}, from_time {from_time!r}: give one of the two")
    if from_time is not None:
        return ReplayPosition(None, moment("from_time", from_time))
    if isinstance(from_id, bool) or not isinstance(from_id, int) or not 1 <= from_id <= asked.LARGEST:
        raise asked.ArgumentError(
            "from_id", f"{from_id!r} is no record id: those are whole numbers from 1 to {asked.LARGEST}"
        )
    return ReplayPosition(from_id, None)


def parsed(text: str) -> ReplayPosition:
    """A record id if it is a number, else a time."""
    if not (text.isascii() and text.isdecimal()):
        return point(None, text)
    return point(int(text) if len(text) <= asked.DIGITS else asked.LARGEST + 1, None)
