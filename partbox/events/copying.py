"""Copies payloads, so that later changes by their owner change no event."""

import copy
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

from partbox.classes import parts
from partbox.errors import PublishError
from partbox.events.checks import quoted
from partbox.text.printing import visible

DEEPEST: Final = 50
ROOT: Final = "payload"


def culprit(payload: Any, attempt: Callable[[Any], object]) -> str:
    """The path to the innermost part on which `attempt` fails; the first of several, and at most DEEPEST steps."""
    path, part = ROOT, payload
    for _ in range(DEEPEST):
        found = next(((step, inner) for step, inner in _parts(part) if _fails(attempt, inner)), None)
        if found is None:
            break
        path, part = path + found[0], found[1]
    return path


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((_step(key), inner) for key, inner in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", inner) for place, inner in enumerate(value))
    else:
        yield from ((f".{name}", inner) for name, inner in parts(value))


def _step(key: Any) -> str:
    text = visible(str(key))
    return f".{text}" if isinstance(key, str) and key.isidentifier() else f"[{text!r}]"


_ATOMS: Final = (str, int, float, type(None), bytes, UUID, Decimal, datetime, date, time, timedelta, Enum)
_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


class Uncopied:
    """A payload that is written before its owner can change it, so it is not copied."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any) -> None:
        self.payload = payload


def copied(value: Any, event_type: str) -> Any:
    """A copy of `value` that later changes by its owner do not affect; what is `Uncopied` itself."""
    if type(value) is Uncopied:
        return value.payload
    try:
        return _copy(value)
    except Exception as error:
        problem = type(error).__name__
        where = f"{culprit(value, _copy)} of {quoted(event_type)}"
        raise PublishError(
            f"{where} cannot be copied ({problem}): give JSON values, dataclasses, models, Structs or attrs classes"
        ) from error


def _fails(attempt: Callable[[Any], object], part: Any) -> bool:
    try:
        attempt(part)
    except Exception:
        return True
    return False


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) in _PLAIN else _copy(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return kind([item if type(item) in _PLAIN else _copy(item) for item in value])
    if kind is bytearray or kind is memoryview:
        return bytes(value)
    # deepcopy knows nothing of most immutable types and takes them apart.
    return value if isinstance(value, _ATOMS) else copy.deepcopy(value)
