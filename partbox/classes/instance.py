"""Instances of the four kinds of classes, as type checkers know them."""

from typing import Any, ClassVar, Protocol


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
