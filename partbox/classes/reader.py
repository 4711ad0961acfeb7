"""The contract of what reads instances of a class, and its errors."""

from typing import Any, Protocol


class UnfitError(ValueError):
    """A payload does not fit a class; the text names the place and what is wrong there, without the value."""


class NotJsonError(UnfitError):
    """A library takes the text for no JSON: it is damaged, or nested too deep for that library."""


class UnreadableError(TypeError):
    """A class cannot be read from JSON by any library; the text says why."""


class Reader(Protocol):
    """Reads one class. Both ways raise UnfitError."""

    def from_json(self, text: bytes) -> Any:
        """From JSON as it is stored; NotJsonError if the library cannot parse it."""

    def from_python(self, value: Any) -> Any:
        """From what a codec has decoded, or from an instance."""

    def schema(self) -> dict[str, Any]:
        """JSON Schema of what is read. UnreadableError if a part has none."""
