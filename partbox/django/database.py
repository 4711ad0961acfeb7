"""The database of the outbox, as Django knows it."""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from partbox.db import statements
from partbox.django.conf import config
from partbox.protocol.hashing import partition_of

_NAMES = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}


def connection() -> Any:
    """Django's connection to it; ImproperlyConfigured unless it is one to PostgreSQL."""
    alias = config().database
    try:
        found = connections[alias]
    except ConnectionDoesNotExist:
        known = ", ".join(map(repr, connections))
        raise ImproperlyConfigured(
            f"PARTBOX names the database {alias!r}, which DATABASES lacks: it has {known}"
        ) from None
    if found.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"database {alias!r} is one of {found.vendor}, and partbox needs PostgreSQL: "
            'name another alias as PARTBOX["DATABASE"]'
        )
    return found


def dsn() -> str:
    """A DSN of the same database, as of now: in a test it is the test's. Options that libpq lacks are left out."""
    given = connection().settings_dict
    options = given.get("OPTIONS") or {}
    known = {each.keyword.decode() for each in Conninfo.get_defaults()}
    values = {libpq: given[name] for name, libpq in _NAMES.items() if given.get(name)}
    values |= {name: value for name, value in options.items() if name in known and value is not None}
    if role := options.get("assume_role"):
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        values["options"] = f"{values.get('options', '')} -c role={escaped}".strip()
    if not values.keys() & {"dbname", "service"}:
        values["dbname"] = "postgres"  # as Django does
    return make_conninfo("", **values)


def highest_record_id() -> int:
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
