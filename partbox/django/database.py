"""The database of the outbox, as Django knows it."""

from collections.abc import Callable, Iterable
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
    """Return Django's connection to the outbox's database. Raise ImproperlyConfigured unless it is PostgreSQL."""
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
            f"database {alias!r} uses {found.vendor}, but partbox needs PostgreSQL: "
            'name another alias as PARTBOX["DATABASE"]'
        )
    return found


def dsn() -> str:
    """Return the connection string (DSN) of the database that Django uses for the outbox."""
    # In a test, that is the test database.
    # Options unknown to libpq are left out.
    given = connection().settings_dict
    options = given.get("OPTIONS") or {}
    known = {each.keyword.decode() for each in Conninfo.get_defaults()}
    values = {libpq: given[name] for name, libpq in _NAMES.items() if given.get(name)}
    values |= {name: value for name, value in options.items() if name in known and value is not None}
    if role := options.get("assume_role"):
        escaped = str(role).replace("\\", "\\\\").replace(" ", "\\ ")
        values["options"] = f"{values.get('options', '')} -c role={escaped}".strip()
    if not values.keys() & {"dbname", "service"}:
        # Django's own default.
        values["dbname"] = "postgres"
    return make_conninfo("", **values)


def highest_record_id() -> int:
    """Return the highest id that the outbox has given to a record so far."""
    return int(_fetch_row(statements.django_newest)[0])


def published() -> int:
    """Return the id of the last record that this database session has published, or a slightly higher id."""
    return int(_fetch_row(statements.django_published)[0])


def read_states(records: Iterable[tuple[int, int]]) -> dict[int, dict[str, str]]:
    """Read the states of records, given as pairs of partition and id: for each id the state in each subscription."""
    partitions, ids = zip(*records, strict=True) if (records := [*records]) else ((), ())
    found: dict[int, dict[str, str]] = {each: {} for each in ids}
    with connection().cursor() as cursor:
        cursor.execute(_text(statements.django_states), {"partitions": [*partitions], "ids": [*ids]})
        for record_id, subscription, state in cursor.fetchall():
            found[record_id][subscription] = state
    return found


class TaskRow(NamedTuple):
    """The state of a Django task in the database, such as its arguments, status, attempts and last error.

    The state is read from the record of the task's event and from the row that the event has while it is failed or
    waiting (the parked row), if there is one."""

    path: str
    payload: Any
    created_at: Any
    status: str
    attempts: int | None
    error: str | None
    trace: str | None


def task(subscription: str, aggregate_type: str, id: int, event_id: UUID) -> TaskRow | None:
    """Read the state of a Django task from the database. Return None if the log has no event for the task."""
    # The arguments identify the event that stands for the task.
    values = {"subscription": subscription, "aggregate_type": aggregate_type, "id": id, "event_id": event_id}
    found = _fetch_row(statements.django_task, values | {"partition": partition_of(str(event_id))})
    return None if found is None else TaskRow(*found)


def _fetch_row(statement: Callable[[str], bytes], values: dict[str, Any] | None = None) -> Any:
    with connection().cursor() as cursor:
        cursor.execute(_text(statement), values or {})
        return cursor.fetchone()


def _text(statement: Callable[[str], bytes]) -> str:
    return statement(config().schema).decode()
