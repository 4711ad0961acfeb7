"""The topics that Debezium's EventRouter sends to: those of the relay, but as an aggregate type is spelt."""

import re
from string import Formatter
from typing import Final

from partbox.errors import SettingsError

FIELDS: Final = ("aggregate_type", "event_type")
"""Columns that a topic may be named for: those that every record has."""

_LEGAL = re.compile(r"[A-Za-z0-9._-]*")
_THERE = " and ".join(f"{{{field}}}" for field in FIELDS)


class TopicRoute:
    """A template such as `{aggregate_type}-events`, of one field at most, for the router knows no more.

    SettingsError for another field or several, and for a character that no topic of Kafka may have.
    """

    def __init__(self, template: str) -> None:
        pieces = _pieces(template)
        fields = [field for _, field in pieces if field is not None]
        for field in fields:
            if field not in FIELDS:
                raise SettingsError(f"topic {template!r} names {{{field}}}: there are {_THERE}")
        if len(fields) > 1:
            raise SettingsError(f"topic {template!r} names {len(fields)} fields: Debezium's router takes one")
        if not template or not all(_LEGAL.fullmatch(text) for text, _ in pieces):
            raise SettingsError(
                f"topic {template!r} must consist of letters a to z, digits, '.', '_', '-' and one {{field}}"
            )
        self._field = fields[0] if fields else FIELDS[0]
        self._replacement = "".join(f"{text}${{routedByValue}}" if field else text for text, field in pieces)

    def options(self) -> dict[str, str]:
        """The template as options of the router."""
        return {"route.by.field": self._field, "route.topic.replacement": self._replacement}


def _pieces(template: str) -> list[tuple[str, str | None]]:
    """Texts, each with the field after it, as it stands in the braces."""
    try:
        parsed = list(Formatter().parse(template))
    except ValueError as error:
        raise SettingsError(f"topic {template!r}: {error}: write one field in braces, such as {FIELDS[0]}") from None
    return [(text, None if name is None else _written(name, spec, how)) for text, name, spec, how in parsed]


def _written(name: str, spec: str | None, conversion: str | None) -> str:
    return name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
