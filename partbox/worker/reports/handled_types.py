"""The note of the event types that a process handles, where it ignores all others."""

from typing import Any
from uuid import UUID

from psycopg import Connection

from partbox.db.delivery import instances
from partbox.handlers.handler import ANY
from partbox.worker.context import Context
from partbox.worker.reports.process_notes import ProcessNote

# Seconds between two measurements.
TYPES_INTERVAL = 60.0
# Seconds after which an unchanged note is written again, so that it is not purged in a long life.
RENEW_INTERVAL = 3_600.0


class HandledTypes(ProcessNote):
    """A record in the database of the event types that a process handles, if the process ignores all other types."""

    # It is written before the process reads events. It tells whether a process that passed an event had a handler for
    # that event, without a row per ignored event.

    text = "the event types with a handler could not be recorded, which is tried again: %s"

    def __init__(self, context: Context) -> None:
        super().__init__(context, TYPES_INTERVAL)
        types = context.routes.list_types()
        ignores = context.settings.unroutable_in(context.subscription) == "ignore"
        self._types = tuple(types) if ignores and (ANY, None) not in types else None

    def _measure(self, now: float) -> tuple[Any, ...]:
        return () if self._types is None else (self._types, now // RENEW_INTERVAL)

    def _write(self, conn: Connection[Any], me: UUID, found: tuple[Any, ...], now: float) -> None:
        types, _ = found
        instances.note_handled_types(conn, self._context.schema, me, self._context.subscription, types)
