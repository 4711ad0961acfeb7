"""The payload of an event as a model: whatever pydantic can validate."""

from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from partbox.errors import PayloadError
from partbox.text.printing import visible

T = TypeVar("T")

_adapter = lru_cache(maxsize=256)(TypeAdapter)


class HasPayload(Protocol):
    """An event with its payload, as stored and decoded; its `repr` shows none of it."""

    @property
    def raw(self) -> bytes: ...
    @property
    def payload(self) -> Any: ...


def validated(event: HasPayload, model: type[T], *, is_json: bool) -> T:
    """The payload, as it is stored if that is JSON; PayloadError if it does not fit."""
    try:
        return cast(T, _validated(event, _adapter(cast(Any, model)), is_json))
    except ValidationError as error:
        problem = _problem(error)
    raise PayloadError(f"the payload of {event!r} is no {getattr(model, '__name__', model)}: {problem}")


def _validated(event: HasPayload, adapter: TypeAdapter[Any], is_json: bool) -> Any:
    if is_json:
        try:
            return adapter.validate_json(event.raw)
        except ValidationError as error:
            if error.errors(include_url=False)[0]["type"] != "json_invalid":  # damaged, or too deep for pydantic
                raise
    return adapter.validate_python(event.payload)


def _problem(error: ValidationError) -> str:
    """The first thing that does not fit, without the value."""
    first, *others = error.errors(include_url=False, include_input=False, include_context=False)
    place = visible(".".join(map(str, first["loc"]))) or "payload"
    return f"{place}: {visible(first['msg'])}" + (f" (and {len(others)} more)" if others else "")
