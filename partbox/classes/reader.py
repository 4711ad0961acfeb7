"""The interface of readers of classes, and their exceptions."""

from typing import Any, Protocol


class UnfitError(ValueError):
    """Raised if a payload does not fit a class. The text names the place and the problem, without the value."""


class NotJsonError(UnfitError):
    """Raised if a payload cannot be parsed as JSON: it is damaged, or nested too deeply for msgspec or pydantic."""


class UnreadableError(TypeError):
    """Raised if no library can convert JSON into instances of a class. The text says why."""


class Reader(Protocol):
    """A converter of event payloads into instances of one class.

    `from_json` and `from_python` raise UnfitError for a payload that does not fit."""

    def from_json(self, text: bytes) -> Any:
        """Convert a stored payload into an instance of the class. Raise NotJsonError if it cannot be parsed."""

    def from_python(self, value: Any) -> Any:
        """Convert a payload of Python objects, such as a dict, into an instance of the class.

        The payload may also be an instance already."""

    def build_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the payloads. Raise UnreadableError if a part has none."""
