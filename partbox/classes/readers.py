"""Select the reader of a class by its kind."""

from functools import lru_cache
from typing import Any

from partbox.classes.kinds import ClassKind, kind_of
from partbox.classes.reader import Reader


@lru_cache(maxsize=256)
def reader_of(cls: Any) -> Reader:
    """Return a converter of payloads into instances of a class. Raise UnreadableError if there is none."""
    # The class may also be any other type that pydantic can validate. There is no converter if neither library can read
    # the class.
    if kind_of(cls) in (ClassKind.MSGSPEC, ClassKind.ATTRS):
        from partbox.classes.by_msgspec import MsgspecReader

        return MsgspecReader(cls)
    from partbox.classes.by_pydantic import PydanticReader

    return PydanticReader(cls)


def schema_of(cls: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a class's payloads. Raise UnreadableError if there is none."""
    return reader_of(cls).build_schema()
