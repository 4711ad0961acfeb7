"""Payloads to bytes and back, by content type.

JSON needs no content type and lives in the column `payload`; everything else lives in `payload_bytes` beside its
content type. Raw bytes published under a type that has no codec carry a mark (a reserved header), so that a handler
gets them back as they are, while bytes made by a codec that its process does not have are refused rather than misread.
"""

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

INTEGERS: Final = (-(2**63), 2**64 - 1)
"""The least and the largest that orjson reads as they are."""

TOO_LONG: Final = "an integer is beyond 64 bits; give it as text"
TOO_LARGE: Final = "a number is beyond a double; give it as text"

# The sign of a number that a worker may read as another; the numbers of a JSON text, outside of its strings.
_LARGE = re.compile(rb"[0-9]{19}|[0-9][eE][+-]?[0-9]{3}")
_NUMBERS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9][0-9.eE+-]*)', re.DOTALL)
_NOT_ZERO = re.compile(rb"-?[0.]*[1-9]")


class Codec(Protocol):
    """Turns the payloads of one content type into bytes and back; either may raise any exception to refuse."""

    def encode(self, value: Any, /) -> bytes: ...

    def decode(self, data: bytes, /) -> Any: ...


class Encoded(NamedTuple):
    """A payload as it is stored: JSON text or other bytes, never both; `raw` = bytes without a codec."""

    text: str | None
    data: bytes | None
    content_type: str | None
    raw: bool


_make_encoded: Callable[[tuple[Any, ...]], Encoded] = partial(tuple.__new__, Encoded)
"""`Encoded(…)` in half of the time: one is made for each event."""


class JsonCodec:
    """orjson, and in addition pydantic models, msgspec Structs, attrs classes, Decimal as text; refuses what JSON
    or PostgreSQL cannot hold.

    Dataclasses are written with all their fields, those whose names begin with an underscore too. Bytes under this
    content type are taken as finished JSON text, as a str is where the content type is given.
    """

    def encode(self, value: Any, /) -> bytes:
        return self.text(value).encode()

    def decode(self, data: bytes, /) -> Any:
        return orjson.loads(data)

    def text(self, value: Any) -> str:
        """`value` as JSON; whatever is wrong with it raises."""
        if isinstance(value, bytes):
            check_json_text = self.check_json_text(value)
            _check_numbers(value)
            return check_json_text
        if type(value) is not dict and (found := to_plain(value)) is not None:
            value = found  # once, for what follows
        # orjson leaves out the fields of dataclasses that begin with an underscore.
        text = orjson.dumps(value, default=_to_plain, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()
        if "null" in text:  # as orjson writes for NaN and Infinity; looked at only then
            _FINITE.encode(value)
        return _without_nul(text) if "\\u0000" in text else text

    def check_json_text(self, value: bytes) -> str:
        """Finished JSON text, its numbers unchecked."""
        orjson.loads(value)
        return _without_nul(value.decode())


_JSON = JsonCodec()


class RawCodec:
    """Bytes as they are."""

    def encode(self, value: Any, /) -> bytes:
        if not isinstance(value, bytes):
            raise TypeError(f"it must be bytes, not {type(value).__name__}")
        return value

    def decode(self, data: bytes, /) -> bytes:
        return data


class Codecs:
    """The codecs of one outbox: JSON, raw bytes, and `own` by content type, which win."""

    def __init__(self, own: Mapping[str, Codec] | None = None) -> None:
        self._by_type: dict[str, Codec] = {JSON: _JSON, OCTETS: RawCodec(), **(own or {})}
        self._json = self._by_type[JSON]
        self.upcasts: dict[tuple[str, int], Callable[[Any], Any]] = {}
        """What turns the payload of an older version into that of the next, see `partbox.events.upcasts`."""

    def is_json(self, content_type: str | None) -> bool:
        """True if JSON text is stored under it and no codec of the application reads it."""
        return content_type is None and self._json is _JSON

    def encode(self, value: Any, content_type: str | None = None) -> Encoded:
        """`value` as it is stored; bytes without a content type are octets. Raises PublishError."""
        kind = content_type or (OCTETS if isinstance(value, bytes) else JSON)
        codec = self._by_type.get(kind)
        if codec is None and not isinstance(value, bytes):
            raise PublishError(
                f"no codec for content type {kind[:100]!a}: give it to Outbox(codecs=…), or the payload as bytes"
            )
        if codec is None:
            return Encoded(None, value, kind, True)
        try:
            if codec is _JSON:
                if content_type == JSON and isinstance(value, str):  # finished text, as bytes are
                    value = value.encode()
                return _make_encoded((_JSON.text(value), None, None, False))
            data = codec.encode(value)
        except Exception as error:
            raise PublishError(f"the payload cannot be written as {kind}: {_reason(error, codec)}") from error
        if not isinstance(data, bytes):
            raise PublishError(f"the codec of {kind} must return bytes, not {type(data).__name__}")
        if kind != JSON:
            return Encoded(None, data, kind, False)
        try:  # PostgreSQL would refuse it only after the statement was sent
            return Encoded(_JSON.check_json_text(data), None, None, False)
        except ValueError as error:
            raise PublishError(f"the codec of {JSON} wrote invalid JSON: {_reason(error, _JSON)}") from error

    def decode(self, data: bytes | None, content_type: str | None = None, *, raw: bool = False) -> Any:
        """The payload stored as `data`. Raises PayloadError if it is damaged or nothing knows its content type."""
        if content_type is None and data is not None and self._json is _JSON:  # as nearly all are, in half of the time
            try:
                return orjson.loads(data)
            except ValueError:
                pass
        codec = self._by_type.get(content_type or JSON)
        if data is None or (codec is None and raw):
            return data
        if codec is None:
            name = (content_type or JSON)[:100]
            raise PayloadError(f"no codec for content type {name!a}: give it to Outbox(codecs=…) here too")
        try:
            return codec.decode(data)
        except Exception as error:
            # Without the text of the error: it may quote the payload.
            problem = type(error).__name__
        raise PayloadError(f"the payload cannot be decoded as {content_type or JSON} ({problem})")


def _reason(error: Exception, codec: Codec) -> str:
    """The reason, without the value: only our own codec is known to keep it out of its errors."""
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


def _without_nul(text: str) -> str:
    if _NUL.search(text):
        raise ValueError("a NUL character, which PostgreSQL cannot hold; remove it, or publish bytes")
    return text


def _check_numbers(text: bytes) -> None:
    """JSON text must hold no number that orjson reads as another; `unfit_json.sql` is the same for SQL writers."""
    if _LARGE.search(text):
        for number in filter(None, _NUMBERS.findall(text)):
            if not number.lstrip(b"-").isdigit():
                if float(number) == 0 and _NOT_ZERO.match(number):
                    raise ValueError(TOO_LARGE)
            elif len(number) > 20 or not INTEGERS[0] <= int(number) <= INTEGERS[1]:
                raise ValueError(TOO_LONG)


def _to_plain(value: Any) -> Any:
    """A form for values that orjson does not know by itself, or writes in part."""
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


def _nested_values(value: Any) -> Any:
    """The parts of `value` that may hold a float, for the search of NaN."""
    return value.value if isinstance(value, Enum) else to_plain(value)


_FINITE: Final = json.JSONEncoder(default=_nested_values, allow_nan=False)
"""Raises ValueError for NaN and Infinity."""
