"""Select the reader of a class by its kind."""

from functools import lru_cache
from typing import Any

from partbox.classes.kinds import ClassKind, kind_of
from partbox.classes.reader import Reader


@lru_cache(maxsize=256)
def reader_of(cls: Any) -> Reader:
    """Return the object that converts payloads into instances of a class, or of any other type that pydantic can
    validate. Raise UnreadableError if neither library can read it."""
    if kind_of(cls) in (ClassKind.MSGSPEC, ClassKind.ATTRS):
        from partbox.classes.by_msgspec import MsgspecReader

        return MsgspecReader(cls)
    from partbox.classes.by_pydantic import PydanticReader

    return PydanticReader(cls)


def schema_of(cls: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the payloads that a class accepts. Raise UnreadableError if there is
    none."""
    return reader_of(cls).schema()
