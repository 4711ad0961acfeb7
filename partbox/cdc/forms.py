"""The options of a connector in the forms that Debezium takes, without its password."""

from collections.abc import Mapping
from typing import Any, Final

CONNECT_PASSWORD: Final = "${env:DEBEZIUM_PASSWORD}"  # noqa: S105  the name of a variable
"""A placeholder that Kafka Connect replaces by a variable of its worker's environment."""

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def connect(name: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The document that creates the connector in Kafka Connect: POST it to /connectors."""
    return {"name": name, "config": {**options, "database.password": CONNECT_PASSWORD}}


def properties(name: str, options: Mapping[str, str]) -> str:
    """A file of Java's properties, for a program with Debezium's engine in it."""
    lines = [f"{key}={_escaped(value)}" for key, value in {"name": name, **options}.items()]
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    """The value in ASCII; a leading blank would be dropped."""
    text = "".join(_ESCAPES.get(each) or _ascii(each) for each in value)
    return f"\\{text}" if text.startswith(" ") else text


def _ascii(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))
