"""Templates of topics: `{aggregate_type}-events` is `order-events` for an event of the aggregate type `Order`."""

import re
from functools import lru_cache
from string import Formatter
from typing import Final

from partbox.errors import SettingsError
from partbox.events import DeliveredEvent
from partbox.events.record import AGGREGATE_TYPE, EVENT_TYPE, TENANT_ID

DEFAULT: Final = "{aggregate_type}-events"
FIELDS: Final = ("aggregate_type", "event_type", "tenant_id")

KEPT: Final = 1_000
"""Topics that are known without being made again."""

_ILLEGAL = re.compile(r"[^a-z0-9._-]")


class Topic:
    """A template of fields of the event in braces. SettingsError for an unknown field, or wrong braces.

    The value of a field is lower-cased, and characters that a broker may refuse become `-`; the rest of the
    template is taken as it is.
    """

    def __init__(self, template: str) -> None:
        try:
            named = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
        except ValueError as error:
            raise SettingsError(f"topic {template!r}: {error}; write a brace that is meant as such twice") from None
        for name in named:
            if name not in FIELDS:
                fields = ", ".join(f"{{{field}}}" for field in FIELDS)
                raise SettingsError(f"topic {template!r} names {{{name}}}: there are {fields}")
        if not template:
            raise SettingsError(f"topic '' is empty: name one, such as {DEFAULT}")
        self.template = template
        self._is_fixed = not named

    @property
    def fixed(self) -> str | None:
        """The topic of all events, if it is the same for all; so it can be looked for at start."""
        return self.template.format() if self._is_fixed else None

    def of(self, event: DeliveredEvent) -> str:
        """The topic of an event."""
        record = event.record
        return _made(self.template, record[AGGREGATE_TYPE], record[EVENT_TYPE], record[TENANT_ID])


@lru_cache(KEPT)
def _made(template: str, *values: str | None) -> str:
    return template.format(**dict(zip(FIELDS, map(_legal, values), strict=True)))


def _legal(value: str | None) -> str:
    return _ILLEGAL.sub("-", (value or "none").lower())
