"""The values by which limits divide the events of a handler, made of whatever an application's `limit_by` returns.

They are keys of dictionaries that are read with the engine's lock held, and are shown as labels. So they are plain
values of Python's own classes, whose `==` and `hash` run no code of the application, and none is long.
"""

from collections.abc import Iterator
from enum import Enum
from hashlib import sha256
from typing import Final, TypeAlias
from uuid import UUID

LimitValue: TypeAlias = "str | int | UUID | tuple[LimitValue, ...] | None"

KINDS: Final = "str, int, bool, UUID, Enum, None or a tuple of these"
LONGEST: Final = 200  # characters of a text; a longer one is its beginning and its digest
MAX_BITS: Final = 128  # bits of a number; a larger one is a digest
MAX_PARTS: Final = 16  # of a tuple
DEPTH: Final = 4  # of tuples in tuples


class UnfitValueError(TypeError):
    """A value by which no limit divides events."""


def to_limit_value(found: object, depth: int = DEPTH) -> LimitValue:
    """Return the plain value: of an instance of a subclass that of its class, of an Enum `Class.NAME`.

    Raises UnfitValueError for a value of another kind. An odd subclass may raise anything.
    """
    kind = type(found)
    if found is None or kind is bool:
        return found  # type: ignore[return-value]
    if issubclass(kind, str):
        return _short(str.__str__(found))
    if issubclass(kind, int):
        number = int.__int__(found)  # type: ignore[arg-type]
        return number if number.bit_length() <= MAX_BITS else f"int sha256:{sha256(hex(number).encode()).hexdigest()}"
    if issubclass(kind, Enum):
        return _short(f"{kind.__qualname__}.{str.__str__(found._name_)}")  # type: ignore[attr-defined]
    if issubclass(kind, UUID):
        return UUID(int=int.__int__(found.int))  # type: ignore[attr-defined]
    if not issubclass(kind, tuple):
        raise UnfitValueError(f"it is of the class {kind.__name__}")
    parts = tuple.__len__(found)  # type: ignore[arg-type]
    if parts > MAX_PARTS or not depth:
        raise UnfitValueError(
            f"it is a tuple of {parts} parts, or one in {DEPTH} others: {MAX_PARTS} parts are the most"
        )
    members: Iterator[object] = tuple.__iter__(found)  # type: ignore[arg-type]
    return tuple(to_limit_value(each, depth - 1) for each in members)


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}... sha256:{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
