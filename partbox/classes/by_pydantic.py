"""Read pydantic models, dataclasses, and any other type that pydantic can validate."""

from typing import Any

from pydantic import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from partbox.classes.reader import NotJsonError, UnfitError, UnreadableError
from partbox.text.printing import make_visible


class PydanticReader:
    """A converter of event payloads into instances of one type, by pydantic.

    From JSON, even a strict model accepts texts for times, UUIDs and Decimals."""

    def __init__(self, cls: Any) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(cls)
        except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
            raise UnreadableError(str(error).partition("\n")[0]) from error

    def from_json(self, text: bytes) -> Any:
        try:
            return self._adapter.validate_json(text)
        except PydanticValidationError as error:
            is_json = error.errors(include_url=False)[0]["type"] != "json_invalid"
            problem = _describe_problem(error)
        raise UnfitError(problem) if is_json else NotJsonError(problem)

    def from_python(self, value: Any) -> Any:
        try:
            return self._adapter.validate_python(value)
        except PydanticValidationError as error:
            problem = _describe_problem(error)
        raise UnfitError(problem)

    def build_schema(self) -> dict[str, Any]:
        try:
            return self._adapter.json_schema()
        except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
            raise UnreadableError(str(error).partition("\n")[0]) from error


def _describe_problem(error: PydanticValidationError) -> str:
    """Describe where and why a payload does not fit its class, without quoting the payload's value."""
    # Only the first part that does not fit is described.
    first, *others = error.errors(include_url=False, include_input=False, include_context=False)
    place = make_visible(".".join(map(str, first["loc"]))) or "payload"
    return f"{place}: {make_visible(first['msg'])}" + (f" (and {len(others)} more)" if others else "")
