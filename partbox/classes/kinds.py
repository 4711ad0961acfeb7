"""The four kinds of classes, told apart without their libraries, and their instances in parts."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Any, ClassVar, Protocol

from partbox.errors import PartboxError
from partbox.platform import library


class DataclassInstance(Protocol):
    """An instance of a dataclass, also one of pydantic's."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class ModelInstance(Protocol):
    """An instance of a pydantic model."""

    __pydantic_validator__: ClassVar[Any]


class StructInstance(Protocol):
    """An instance of a msgspec.Struct."""

    __struct_fields__: ClassVar[tuple[str, ...]]


class AttrsInstance(Protocol):
    """An instance of an attrs class."""

    __attrs_attrs__: ClassVar[Any]


Instance = DataclassInstance | ModelInstance | StructInstance | AttrsInstance


class ClassKind(Enum):
    """A kind of class, as an error names it."""

    PYDANTIC = "pydantic model"
    DATACLASS = "dataclass"
    MSGSPEC = "msgspec.Struct"
    ATTRS = "attrs class"


@lru_cache(maxsize=1024)
def kind_of(cls: Any) -> ClassKind | None:
    """The kind of a class; None for any other class, and for what is no class. A pydantic dataclass is a dataclass."""
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
    """The names of the fields of a class, as attributes; none for a class of no kind."""
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
    """The fields of an instance, by name; nothing of what is no instance of a kind."""
    cls: Any = type(value)
    return ((name, getattr(value, name)) for name in fields_of(cls))


def to_plain(value: Any) -> Any:
    """An instance as a dict, or another value that is nearer to JSON; None if its class is of no kind.

    Of a dataclass all fields, those whose names begin with an underscore too; their values may be instances again.
    """
    cls: Any = type(value)
    kind = kind_of(cls)
    if kind is None:
        return None
    if kind is ClassKind.PYDANTIC:
        return value.model_dump(mode="json", by_alias=True)
    if kind is ClassKind.DATACLASS:
        return {name: getattr(value, name) for name in fields_of(cls)}
    return _msgspec().to_builtins(value, str_keys=True)


@cache
def _msgspec() -> Any:
    try:
        return library("msgspec", "attrs", "attrs classes are written and read by msgspec")
    except PartboxError as missing:
        raise TypeError(str(missing)) from None
