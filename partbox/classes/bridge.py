"""Support msgspec Structs and attrs classes inside types that pydantic validates."""

import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from partbox.classes.kinds import ClassKind, kind_of, to_plain
from partbox.classes.readers import reader_of


@dataclass(frozen=True, slots=True)
class MsgspecBridge:
    """A type annotation that makes pydantic leave the validation of one class to msgspec."""

    cls: Any

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del handler
        return core_schema.no_info_plain_validator_function(
            self._validate, serialization=core_schema.plain_serializer_function_ser_schema(to_plain)
        )

    def _validate(self, value: Any) -> Any:
        return value if isinstance(value, self.cls) else reader_of(self.cls).from_python(value)


def add_bridges(hint: Any) -> Any:
    """Annotate each msgspec Struct and attrs class in a type hint, so that pydantic leaves it to msgspec."""
    # UnreadableError is raised if one of them cannot be read.
    if kind_of(hint) in (ClassKind.MSGSPEC, ClassKind.ATTRS):
        reader_of(hint)
        return Annotated[hint, MsgspecBridge(hint)]
    arguments, origin = get_args(hint), get_origin(hint)
    if origin is None or origin is Literal:
        return hint
    inner = arguments[:1] if origin is Annotated else arguments
    made = tuple(each if isinstance(each, list) else add_bridges(each) for each in inner)
    if made == inner:
        return hint
    if origin is Annotated:
        return Annotated[(*made, *arguments[1:])]
    return Union[made] if origin in (Union, types.UnionType) else origin[made]  # noqa: UP007  of a tuple
