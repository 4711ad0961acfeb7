"""The database of the outbox, as Django knows it."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from partbox.django.conf import config

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
