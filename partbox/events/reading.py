"""Read the payload of an event as an instance of a class, even if the event has an older version."""

from typing import Any, Protocol, TypeVar

import orjson

from partbox.classes import NotJsonError, Reader, UnfitError, reader_of
from partbox.errors import PayloadError
from partbox.events import upcasts
from partbox.events.declaration import event_type_of

T = TypeVar("T")


class HasPayload(Protocol):
    """The interface of an event whose payload can be read both as stored and as decoded."""

    @property
    def event_type(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def raw(self) -> bytes: ...
    def decode_payload(self) -> Any: ...


def read_payload(event: HasPayload, model: type[T], *, is_json: bool, by: upcasts.Upcasts) -> T:
    """Convert an event's payload into an instance of the class `model`. Raise PayloadError if it does not fit."""
    # A payload of an older version goes through the upcasts (conversion functions) `by` first. NewerVersionError is
    # raised if its version is newer than the class.
    cls: Any = model
    reader, declared = reader_of(cls), event_type_of(cls)
    try:
        if declared is not None and declared.name == event.event_type and event.version != declared.version:
            upcasts.check_not_newer(event.version, declared)
            payload = upcasts.apply_upcasts(event.decode_payload(), event.version, declared, by)
            return _read_plain(reader, payload) if is_json else reader.from_python(payload)  # type: ignore[no-any-return]
        return _read_stored(reader, event) if is_json else reader.from_python(event.decode_payload())  # type: ignore[no-any-return]
    except UnfitError as error:
        problem = str(error)
    raise PayloadError(f"the payload is no {getattr(model, '__name__', model)}: {problem}")


def _read_stored(reader: Reader, event: HasPayload) -> Any:
    try:
        return reader.from_json(event.raw)
    except NotJsonError:
        # `decode_payload` raises PayloadError if the text is damaged.
        return reader.from_python(event.decode_payload())


def _read_plain(reader: Reader, payload: Any) -> Any:
    """Convert a decoded payload into an instance of the reader's class, by way of JSON if possible."""
    # From JSON, even a strict class accepts texts for times and Decimals.
    try:
        text = orjson.dumps(payload)
    except TypeError:
        return reader.from_python(payload)
    return reader.from_json(text)
