"""Classes whose instances are payloads: dataclasses, pydantic models, msgspec Structs and attrs classes.

`kinds` tells which of them a class is, by what its library leaves on it, and takes an instance apart. `by_pydantic` and
`by_msgspec` read instances from JSON, and describe a class as JSON Schema: pydantic reads its models, dataclasses and
whatever else it can validate, msgspec its Structs and attrs classes. A library is loaded when a class of its own is
met, so one that is not installed is never asked for.
"""

from partbox.classes.kinds import ClassKind, Instance, fields_of, iter_fields, kind_of, to_plain
from partbox.classes.reader import NotJsonError, Reader, UnfitError, UnreadableError
from partbox.classes.readers import reader_of, schema_of

__all__ = [
    "ClassKind",
    "Instance",
    "NotJsonError",
    "Reader",
    "UnfitError",
    "UnreadableError",
    "fields_of",
    "iter_fields",
    "kind_of",
    "reader_of",
    "schema_of",
    "to_plain",
]
