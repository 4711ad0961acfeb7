"""Encoding and decoding of payloads, by content type.

JSON needs no content type and is stored in the column `payload`, everything else in `payload_bytes`. Bytes under a type
without a codec are marked by a reserved header, so that a handler gets them unchanged. Unmarked bytes, which a codec
has made, are refused by a process without that codec instead of being misread."""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import orjson

from partbox.classes import to_plain
from partbox.errors import PayloadError, PublishError

JSON = "application/json"
OCTETS = "application/octet-stream"

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")

# The smallest and the largest integer that orjson reads exactly.
INTEGERS: Final = (-(2**63), 2**64 - 1)

TOO_LONG: Final = "an integer is beyond 64 bits; give it as text"
TOO_LARGE: Final = "a number is beyond a double; give it as text"

# Signs of a number that a worker may read as another one.
_LARGE = re.compile(rb"[0-9]{19}|[0-9][eE][+-]?[0-9]{3}")
# The numbers of a JSON text outside of its strings.
_NUMBERS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9][0-9.eE+-]*)', re.DOTALL)
_NOT_ZERO = re.compile(rb"-?[0.]*[1-9]")


class Codec(Protocol):
    """An encoder and decoder for payloads of one content type.

    Both methods may raise any exception to refuse a payload."""

    def encode(self, value: Any, /) -> bytes: ...

    def decode(self, data: bytes, /) -> Any: ...


class Encoded(NamedTuple):
    """A payload in the form in which it is stored: JSON text or other bytes.

    `raw` means bytes without a codec."""

    text: str | None
    data: bytes | None
    content_type: str | None
    raw: bool


# Makes an `Encoded` in half of the time, because each event needs an instance.
_make_encoded: Callable[[tuple[Any, ...]], Encoded] = partial(tuple.__new__, Encoded)


class JsonCodec:
    """The codec for JSON payloads, including pydantic models, msgspec Structs and attrs classes.

    It uses orjson, writes Decimal as text, and refuses values that JSON or PostgreSQL cannot hold. Dataclasses are
    written with all fields, even if their names begin with an underscore. Bytes of this content type are taken as
    finished JSON text, and so is a str if the content type is given."""

    def encode(self, value: Any, /) -> bytes:
        return self.text(value).encode()

    def decode(self, data: bytes, /) -> Any:
        return orjson.loads(data)

    def text(self, value: Any) -> str:
        """Convert a payload into JSON text. Raise an exception if that is impossible."""
        if isinstance(value, bytes):
            check_json_text = self.check_json_text(value)
            _check_numbers(value)
            return check_json_text
        if type(value) is not dict and (found := to_plain(value)) is not None:
            # Converted once, for both uses below.
            value = found
        # orjson by itself leaves out dataclass fields that begin with an underscore.
        text = orjson.dumps(value, default=_to_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
        # orjson writes null for NaN and Infinity, so only then they are searched for.
        if "null" in text:
            _FINITE.encode(value)
        return _refuse_nul(text) if "\\u0000" in text else text

    def check_json_text(self, value: bytes) -> str:
        """Return a payload that is JSON text already. Raise an exception if its syntax is invalid."""
        # The numbers are not checked.
        orjson.loads(value)
        return _refuse_nul(value.decode())


_JSON = JsonCodec()


class RawCodec:
    """The codec for payloads of plain bytes, which stay as they are."""

    def encode(self, value: Any, /) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"it must be bytes, not {type(value).__name__}")
        return value

    def decode(self, data: bytes, /) -> bytes:
        return data


class Codecs:
    """The payload codecs of one outbox, by content type.

    The application's `own` codecs take precedence."""

    def __init__(self, own: Mapping[str, Codec] | None = None) -> None:
        self._by_type: dict[str, Codec] = {JSON: _JSON, OCTETS: RawCodec(), **(own or {})}
        self._json = self._by_type[JSON]
        # Functions that convert the payload of one version into the next, see `partbox.events.upcasts`.
        self.upcasts: dict[tuple[str, int], Callable[[Any], Any]] = {}

    def is_json(self, content_type: str | None) -> bool:
        """Return True if partbox's own JSON codec encodes payloads of this content type."""
        # Such payloads are stored as JSON text, and no codec of the application reads them.
        return content_type is None and self._json is _JSON

    def encode(self, value: Any, content_type: str | None = None) -> Encoded:
        """Convert a payload into the form in which it is stored. Raise PublishError if that is impossible."""
        # Bytes without a content type are octets.
        kind = content_type or (OCTETS if isinstance(value, bytes) else JSON)
        codec = self._by_type.get(kind)
        if codec is None and not isinstance(value, bytes):
            raise PublishError(
                f"no codec for content type {kind[:100]!a}: pass one to Outbox(codecs=…), or give the payload as bytes"
            )
        if codec is None:
            return Encoded(None, value, kind, True)
        try:
            if codec is _JSON:
                # A str under this content type is finished text, as bytes are.
                if content_type == JSON and isinstance(value, str):
                    value = value.encode()
                return _make_encoded((_JSON.text(value), None, None, False))
            data = codec.encode(value)
        except Exception as error:
            raise PublishError(f"the payload cannot be written as {kind}: {_format_reason(error, codec)}") from error
        if not isinstance(data, bytes):
            raise PublishError(f"the codec of {kind} must return bytes, not {type(data).__name__}")
        if kind != JSON:
            return Encoded(None, data, kind, False)
        # PostgreSQL would refuse invalid JSON only after the statement was sent.
        try:
            return Encoded(_JSON.check_json_text(data), None, None, False)
        except ValueError as error:
            raise PublishError(f"the codec of {JSON} wrote invalid JSON: {_format_reason(error, _JSON)}") from error

    def decode(self, data: bytes | None, content_type: str | None = None, *, raw: bool = False) -> Any:
        """Convert stored data back into a payload. Raise PayloadError if the data is damaged or has no codec."""
        # Nearly all payloads take this path, in half of the time.
        if content_type is None and data is not None and self._json is _JSON:
            try:
                return orjson.loads(data)
            except ValueError:
                pass
        codec = self._by_type.get(content_type or JSON)
        if data is None or (codec is None and raw):
            return data
        if codec is None:
            name = (content_type or JSON)[:100]
            raise PayloadError(f"no codec for content type {name!a}: pass one to Outbox(codecs=…) here too")
        try:
            return codec.decode(data)
        except Exception as error:
            problem = type(error).__name__
        # Without the error's text, which may quote the payload.
        raise PayloadError(f"the payload cannot be decoded as {content_type or JSON} ({problem})")


def _format_reason(error: Exception, codec: Codec) -> str:
    """Return the text of a codec's error, without any part of the payload."""
    # Only partbox's own codec is known to keep the payload out of its errors.
    error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if not isinstance(codec, JsonCodec):
        return type(error).__name__
    if "64-bit" in str(error):
        return TOO_LONG
    if "Out of range float" in str(error):
        return "NaN and Infinity have no place in JSON; give None or text"
    if "infinity" in str(error):
        return TOO_LARGE
    return str(error)


def _refuse_nul(text: str) -> str:
    if _NUL.search(text):
        raise ValueError("it holds a NUL character, which PostgreSQL cannot store; remove it, or publish bytes")
    return text


def _check_numbers(text: bytes) -> None:
    """Raise ValueError if JSON text has a number that would be read differently, such as an integer beyond 64 bits."""
    # orjson reads it as another number. `unfit_json.sql` is the same check for writers in SQL.
    if _LARGE.search(text):
        for number in filter(None, _NUMBERS.findall(text)):
            if not number.lstrip(b"-").isdigit():
                if float(number) == 0 and _NOT_ZERO.match(number):
                    raise ValueError(TOO_LARGE)
            elif len(number) > 20 or not INTEGERS[0] <= int(number) <= INTEGERS[1]:
                raise ValueError(TOO_LONG)


def _to_plain(value: Any) -> Any:
    """Convert an object that the JSON library cannot write, such as a Decimal or dataclass. Raise TypeError for
    others."""
    # ValueError is raised for a Decimal that is not finite.
    # orjson does not know the value, or writes it only in part.
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError("Out of range float: a Decimal that is not finite")
        return str(value)
    if (found := to_plain(value)) is not None:
        return found
    raise TypeError(
        f"{type(value).__name__} has no form in JSON; give a dict, or an instance of a dataclass, pydantic model, "
        "msgspec.Struct or attrs class"
    )


def _list_nested_values(value: Any) -> Any:
    """Return the plain value of an Enum member or class instance, so that NaN can be searched for in it."""
    return value.value if isinstance(value, Enum) else to_plain(value)


# Raises ValueError for NaN and Infinity.
_FINITE: Final = json.JSONEncoder(default=_list_nested_values, allow_nan=False)
