"""Classes whose instances are payloads: dataclasses, pydantic models, msgspec Structs and attrs classes. A library is
imported only when one of its classes is used, so a library that is not installed is never needed."""

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
