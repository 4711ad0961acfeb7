"""The interface of readers of classes, and their exceptions."""

from typing import Any, Protocol


class UnfitError(ValueError):
    """Raised if a payload does not fit a class. The text names the place and the problem, without the value."""


class NotJsonError(UnfitError):
    """Raised if a library cannot parse a text as JSON: it is damaged, or nested too deeply for that library."""


class UnreadableError(TypeError):
    """Raised if no library can read a class from JSON. The text says why."""


class Reader(Protocol):
    """A reader of instances of one class. `from_json` and `from_python` raise UnfitError."""

    def from_json(self, text: bytes) -> Any:
        """Return an instance from JSON as stored. Raise NotJsonError if the library cannot parse the text."""

    def from_python(self, value: Any) -> Any:
        """Return an instance from a value that a codec has decoded, or from an instance."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the accepted payloads. Raise UnreadableError if a part has none."""
