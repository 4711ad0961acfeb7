"""Convert the results of an application's `limit_by` or `circuit_by` into plain values that divide events."""

from collections.abc import Iterator
from enum import Enum
from hashlib import sha256
from typing import Final, TypeAlias
from uuid import UUID

LimitValue: TypeAlias = "str | int | UUID | tuple[LimitValue, ...] | None"

KINDS: Final = "str, int, bool, UUID, Enum, None or a tuple of these"
LONGEST: Final = 200  # characters of a text; a longer text becomes its beginning and its digest
MAX_BITS: Final = 128  # bits of a number; a larger number becomes a digest
MAX_PARTS: Final = 16  # members of a tuple
DEPTH: Final = 4  # tuples inside tuples


class UnfitValueError(TypeError):
    """Raised if `limit_by` or `circuit_by` returned a value, such as a list, that cannot group events."""


def to_limit_value(found: object, depth: int = DEPTH) -> LimitValue:
    """Convert a result of `limit_by` or `circuit_by` into a plain value that groups events. Raise UnfitValueError if it
    cannot."""
    # The values become keys of dictionaries that are read under the engine's lock, and are shown as labels. The values
    # are therefore short, and instances of Python's own classes, whose `==` and `hash` run no code of the application.
    # An instance of a subclass becomes an instance of the base class. An Enum becomes the text `Class.NAME`. The error
    # is raised for a value of another kind. The methods of an unusual subclass may raise any exception. `limit_by` and
    # `circuit_by` belong to the application.
    # Classes are tested with `issubclass`, and methods are called on the built-in base class, so that no method of the
    # application's subclass runs.
    kind = type(found)
    if found is None or kind is bool:
        return found  # type: ignore[return-value]
    if issubclass(kind, str):
        return _shorten(str.__str__(found))
    if issubclass(kind, int):
        number = int.__int__(found)  # type: ignore[arg-type]
        return number if number.bit_length() <= MAX_BITS else f"int sha256:{sha256(hex(number).encode()).hexdigest()}"
    if issubclass(kind, Enum):
        return _shorten(f"{kind.__qualname__}.{str.__str__(found._name_)}")  # type: ignore[attr-defined]
    if issubclass(kind, UUID):
        return UUID(int=int.__int__(found.int))  # type: ignore[attr-defined]
    if not issubclass(kind, tuple):
        raise UnfitValueError(f"it is an instance of {kind.__name__}")
    parts = tuple.__len__(found)  # type: ignore[arg-type]
    if parts > MAX_PARTS or not depth:
        raise UnfitValueError(
            f"it is a tuple of {parts} parts, or inside {DEPTH} other tuples: at most {MAX_PARTS} parts are allowed"
        )
    members: Iterator[object] = tuple.__iter__(found)  # type: ignore[arg-type]
    return tuple(to_limit_value(each, depth - 1) for each in members)


def format_limit_value(value: object) -> str:
    """Return the text of a plain value, by which people name it: its `str`, and "none" for None."""
    return "none" if value is None else str(value)


def name_limit_value(text: str) -> str:
    """Return the text of the value that people mean by `text`. A long text becomes its beginning and its digest."""
    return _shorten(text)


def _shorten(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}... sha256:{sha256(text.encode(errors='surrogatepass')).hexdigest()}"
