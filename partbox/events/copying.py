"""Copy payloads, so that events are not affected when the owner changes a payload later."""

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from partbox.classes import iter_fields
from partbox.errors import PublishError
from partbox.events.checks import quote_value
from partbox.text.printing import make_visible

MAX_DEPTH: Final = 50
PAYLOAD_ROOT: Final = "payload"


def find_failing_part(payload: Any, attempt: Callable[[Any], object]) -> str:
    """Return the path to the innermost part of a payload on which the function `attempt` fails."""
    # An error message names it. If there are several such parts, the path leads to the first. The path has at most
    # MAX_DEPTH steps.
    path, part = PAYLOAD_ROOT, payload
    for _ in range(MAX_DEPTH):
        found = next(((step, inner) for step, inner in _iter_parts(part) if _is_failing(attempt, inner)), None)
        if found is None:
            break
        path, part = path + found[0], found[1]
    return path


def _iter_parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((_format_step(key), inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", inner) for place, inner in enumerate(value))
    else:
        yield from ((f".{name}", inner) for name, inner in iter_fields(value))


def _format_step(key: Any) -> str:
    text = make_visible(str(key))
    return f".{text}" if isinstance(key, str) and key.isidentifier() else f"[{text!r}]"


_IMMUTABLE: Final = (str, int, float, type(None), bytes, UUID, Decimal, datetime, date, time, timedelta, Enum)
_JSON_ATOMS: Final = frozenset((str, int, float, bool, type(None)))


class BorrowedPayload:
    """A wrapper that marks a payload as not to be copied when an event is created from it."""

    # The payload is written before its owner can change it.

    __slots__ = ("payload",)

    def __init__(self, payload: Any) -> None:
        self.payload = payload


def copy_payload(value: Any, event_type: str) -> Any:
    """Copy an event's payload, so that later changes by its owner do not affect the event."""
    # The payload of a `BorrowedPayload` is returned as it is.
    if type(value) is BorrowedPayload:
        return value.payload
    try:
        return _copy_value(value)
    except Exception as error:
        problem = type(error).__name__
        where = f"{find_failing_part(value, _copy_value)} of {quote_value(event_type)}"
        raise PublishError(
            f"{where} cannot be copied ({problem}): give JSON values, dataclasses, models, Structs or attrs classes"
        ) from error


def _is_failing(attempt: Callable[[Any], object], part: Any) -> bool:
    try:
        attempt(part)
    except Exception:
        return True
    return False


def _copy_value(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) in _JSON_ATOMS else _copy_value(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind([item if type(item) in _JSON_ATOMS else _copy_value(item) for item in value])
    if kind is bytearray or kind is memoryview:
        return bytes(value)
    # `deepcopy` does not know most immutable types, and would take their instances apart.
    return value if isinstance(value, _IMMUTABLE) else copy.deepcopy(value)
