"""Whatever bytes lie in the log: a payload, or a PayloadError that quotes nothing of it; never another error."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from partbox.codecs import JSON, OCTETS, Codec, Codecs, Encoded
from partbox.errors import PayloadError, PublishError
from partbox.events import ClaimContext, DeliveredEvent
from partbox.testing.strategies import json_values, payloads

SECRET = "hunter2"


class Order(BaseModel):
    id: int
    total: float = 0
    tags: list[str] = []


class Spiteful:
    """A codec that raises whatever there is, and quotes what it was given."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def encode(self, value: Any, /) -> bytes:
        raise self._error(f"{value!r} {SECRET}")

    def decode(self, data: bytes, /) -> Any:
        raise self._error(f"{data!r} {SECRET}")


ERRORS = st.sampled_from([ValueError, KeyError, RuntimeError, MemoryError, RecursionError, StopIteration, OSError])
TYPES = st.none() | st.sampled_from([JSON, OCTETS, "image/png", ""]) | st.text()
MODELS = st.sampled_from([Order, int, str, dict[str, int], list[Order], UUID, bytes, type(None)])


def stored(payload: bytes | None, data: bytes | None, content_type: str | None) -> DeliveredEvent:
    """An event with this in its columns."""
    row = (0, 1, b"\0" * 16, "T", "A", None, None, payload, data, content_type, None, None, b"\0" * 8, b"\0" * 8)
    return DeliveredEvent(row, ClaimContext(1, "default", Codecs()))


@given(data=st.binary() | json_values().map(repr).map(str.encode), content_type=TYPES, raw=st.booleans())
@example(data=b"[" * 100_000, content_type=None, raw=False)
@example(data=b'"\xed\xa0\x80"', content_type=None, raw=False)
@example(data=b"1e999", content_type=None, raw=False)
@example(data=b"", content_type=None, raw=False)
def test_garbage_is_a_payload_error_and_nothing_else(data: bytes, content_type: str | None, raw: bool) -> None:
    try:
        Codecs().decode(data, content_type, raw=raw)
    except PayloadError as error:
        one_line(error)


@given(data=st.none() | st.binary(), as_bytes=st.booleans(), content_type=TYPES, model=MODELS)
def test_garbage_that_a_handler_asks_for_as_a_model_is_a_payload_error(
    data: bytes | None, as_bytes: bool, content_type: str | None, model: Any
) -> None:
    event = stored(None if as_bytes else data, data if as_bytes else None, content_type)
    try:
        event.payload_as(model)
    except PayloadError as error:
        one_line(error)


@example(value="\x1f", model=UUID)  # whose message quotes the character
@given(value=json_values(), model=MODELS)
def test_json_that_does_not_fit_the_model_is_a_payload_error(value: Any, model: Any) -> None:
    try:
        stored(Codecs().encode(value).text.encode(), None, None).payload_as(model)  # type: ignore[union-attr]
    except PayloadError as error:
        one_line(error)


@given(value=payloads(), error=ERRORS)
def test_any_error_of_a_codec_becomes_a_publish_error_or_a_payload_error(value: Any, error: Any) -> None:
    spiteful: dict[str, Codec] = {"own": Spiteful(error)}
    with pytest.raises(PublishError) as refused:
        Codecs(spiteful).encode(value, "own")
    with pytest.raises(PayloadError) as undecodable:
        Codecs(spiteful).decode(b"\0", "own")
    for said in (one_line(refused.value), one_line(undecodable.value)):
        assert SECRET not in said


@given(wrong=st.one_of(st.none(), st.text(), st.integers(), st.lists(st.integers())))
def test_a_codec_that_returns_no_bytes_is_a_publish_error(wrong: Any) -> None:
    class Careless:
        def encode(self, value: Any, /) -> Any:
            return wrong

        def decode(self, data: bytes, /) -> Any:
            return data

    with pytest.raises(PublishError, match="must return bytes"):
        Codecs({"own": Careless()}).encode({}, "own")


@given(data=st.binary())
def test_bytes_given_as_json_are_json_or_refused(data: bytes) -> None:
    try:
        encoded = Codecs().encode(data, JSON)
    except PublishError as error:
        one_line(error)
        return
    assert isinstance(encoded, Encoded)
    assert encoded.text is not None
    assert "\0" not in encoded.text


def one_line(error: Exception) -> str:
    said = str(error)
    assert said.isprintable()
    assert 0 < len(said) < 500
    return said
