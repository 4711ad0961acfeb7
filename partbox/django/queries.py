"""The statements of this app, through Django's connection."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from partbox.db import statements
from partbox.django.conf import config
from partbox.django.database import connection
from partbox.protocol.hashing import partition_of


def newest() -> int:
    """The highest record id that was given out."""
    return int(_row(statements.django_newest)[0])


def published() -> int:
    """An id at or a little above that of the record which this session has published last."""
    return int(_row(statements.django_published)[0])


class TaskRow(NamedTuple):
    """A task, from its record and its parked row."""

    path: str
    payload: Any
    created_at: Any
    status: str
    attempts: int | None
    error: str | None
    trace: str | None


def task(subscription: str, aggregate_type: str, id: int, event_id: UUID) -> TaskRow | None:
    """The task of this event; None if the log has no such event."""
    values = {"subscription": subscription, "aggregate_type": aggregate_type, "id": id, "event_id": event_id}
    found = _row(statements.django_task, values | {"partition": partition_of(str(event_id))})
    return None if found is None else TaskRow(*found)


def _row(statement: Callable[[str], bytes], values: dict[str, Any] | None = None) -> Any:
    with connection().cursor() as cursor:
        cursor.execute(statement(config().schema).decode(), values or {})
        return cursor.fetchone()
