"""The events of an outbox: events that classes declare, and events that only handlers name as text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from partbox.callables import name_of
from partbox.events.declaration import EventType, KeyChoice
from partbox.handlers import RouteRow
from partbox.handlers.handler import ANY


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """An event type in the catalogue of an outbox, with its handler in each subscription."""

    # A subscription without a handler for the event is left out. An event without a class has neither a version nor a
    # key. An `aggregate_type` of None means any.

    name: str
    version: int | None
    aggregate_type: str | None
    key: str
    tenant: str
    cls: str | None
    handlers: tuple[RouteRow, ...]

    def to_plain(self) -> dict[str, Any]:
        """Return the catalogue entry as a dict, in the form that `partbox events list --json` prints."""
        handlers = [
            {"subscription": row.subscription, "handler": row.handler, "place": row.place} for row in self.handlers
        ]
        return {
            "name": self.name,
            "version": self.version,
            "aggregate_type": self.aggregate_type,
            "key": self.key or None,
            "tenant": self.tenant or None,
            "class": self.cls,
            "handlers": handlers,
        }


def list_entries(types: Iterable[EventType], rows: Iterable[RouteRow]) -> list[CatalogueEntry]:
    """Return all event types of the catalogue with their handlers, sorted by name."""
    # All `types`, which classes declare, come first, then the events that only handlers name.
    rows, declared = list(rows), sorted(types, key=lambda each: each.name)
    known = {each.name for each in declared}
    named = {(row.event_type, row.aggregate_type) for row in rows} - {(ANY, row.aggregate_type) for row in rows}
    others = sorted((pair for pair in named if pair[0] not in known), key=lambda pair: (pair[0], pair[1] or ""))
    return [_build_declared_entry(each, rows) for each in declared] + [
        _build_undeclared_entry(name, kind, rows) for name, kind in others
    ]


def _build_declared_entry(event: EventType, rows: list[RouteRow]) -> CatalogueEntry:
    return CatalogueEntry(
        event.name,
        event.version,
        event.aggregate_type,
        format_choice(event.key),
        format_choice(event.tenant),
        name_of(event.cls),
        _find_handlers(rows, event.name, event.aggregate_type),
    )


def _build_undeclared_entry(name: str, aggregate_type: str | None, rows: list[RouteRow]) -> CatalogueEntry:
    return CatalogueEntry(name, None, aggregate_type, "", "", None, _find_handlers(rows, name, aggregate_type))


def _find_handlers(rows: list[RouteRow], name: str, aggregate_type: str | None) -> tuple[RouteRow, ...]:
    """Return each subscription's most specific handler for an event name and aggregate type."""
    # The order of precedence is the same as in `Routes`.
    found: dict[str, RouteRow] = {}
    for wanted in ((name, aggregate_type), (name, None), (ANY, aggregate_type), (ANY, None)):
        for row in rows:
            if (row.event_type, row.aggregate_type) == wanted:
                found.setdefault(row.subscription, row)
    return tuple(found[each] for each in sorted(found))


def format_choice(given: KeyChoice | None) -> str:
    """Return the names of the attributes or the function that supply an event's key or tenant."""
    # The result is an empty text if there are none.
    # The event class takes its key or tenant from them.
    if given is None or isinstance(given, str):
        return given or ""
    return ", ".join(given) if isinstance(given, tuple) else name_of(given)
