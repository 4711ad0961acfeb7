"""The four kinds of payload classes, recognised without importing their libraries."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any, ClassVar, Protocol

from partbox.errors import PartboxError
from partbox.platform import library


class DataclassInstance(Protocol):
    """The static type of instances of any dataclass, including pydantic's dataclasses."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class ModelInstance(Protocol):
    """The static type of instances of any pydantic model."""

    __pydantic_validator__: ClassVar[Any]


class StructInstance(Protocol):
    """The static type of instances of any msgspec.Struct."""

    __struct_fields__: ClassVar[tuple[str, ...]]


class AttrsInstance(Protocol):
    """The static type of instances of any class made by attrs."""

    __attrs_attrs__: ClassVar[Any]


Instance = DataclassInstance | ModelInstance | StructInstance | AttrsInstance


class ClassKind(Enum):
    """The library by which a payload class is made, such as pydantic or attrs."""

    # The value is the name of the kind for error messages.

    PYDANTIC = "pydantic model"
    DATACLASS = "dataclass"
    MSGSPEC = "msgspec.Struct"
    ATTRS = "attrs class"


@lru_cache(maxsize=1024)
def kind_of(cls: Any) -> ClassKind | None:
    """Return the kind of a payload class (pydantic model, dataclass, msgspec.Struct or attrs class), or None for
    others."""
    # The result is None for any other class or object. A pydantic dataclass is a dataclass.
    if not isinstance(cls, type):
        return None
    if hasattr(cls, "__struct_fields__"):
        return ClassKind.MSGSPEC
    if hasattr(cls, "__attrs_attrs__"):
        return ClassKind.ATTRS
    if is_dataclass(cls):
        return ClassKind.DATACLASS
    return ClassKind.PYDANTIC if hasattr(cls, "__pydantic_validator__") and hasattr(cls, "model_fields") else None


@lru_cache(maxsize=1024)
def fields_of(cls: Any) -> tuple[str, ...]:
    """Return the field names of a dataclass, pydantic, msgspec or attrs class, or () for others."""
    match kind_of(cls):
        case ClassKind.MSGSPEC:
            return tuple(cls.__struct_fields__)
        case ClassKind.ATTRS:
            return tuple(field.name for field in cls.__attrs_attrs__)
        case ClassKind.DATACLASS:
            return tuple(field.name for field in fields(cls))
        case ClassKind.PYDANTIC:
            return tuple(cls.model_fields)
    return ()


def iter_fields(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the field names and values of a dataclass, pydantic, msgspec or attrs instance."""
    # Any other object has none.
    cls: Any = type(value)
    return ((name, getattr(value, name)) for name in fields_of(cls))


def to_plain(value: Any) -> Any:
    """Convert a dataclass, pydantic, msgspec or attrs instance into plain data, or return None for others."""
    # The result is a dict or another value closer to JSON. The dict of a dataclass contains all fields, including
    # fields whose names begin with an underscore. The values may be instances themselves.
    cls: Any = type(value)
    kind = kind_of(cls)
    if kind is None:
        return None
    if kind is ClassKind.PYDANTIC:
        return value.model_dump(mode="json", by_alias=True)
    if kind is ClassKind.DATACLASS:
        return {name: getattr(value, name) for name in fields_of(cls)}
    return _import_msgspec().to_builtins(value, str_keys=True)


@cache
def _import_msgspec() -> Any:
    try:
        return library("msgspec", "attrs", "attrs classes are written and read by msgspec")
    except PartboxError as missing:
        raise TypeError(str(missing)) from None
