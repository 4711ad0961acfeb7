"""The psycopg connection below an application's connection."""

from typing import Any

from psycopg import AsyncConnection, Connection

from partbox.errors import PartboxError

# Django's wrapper and SQLAlchemy's, from the outside in.
_INNER = ("sync_session", "sync_connection", "connection", "driver_connection")
DEPTH = 6


def psycopg_of(conn: Any) -> "Connection[Any] | AsyncConnection[Any]":
    """The psycopg connection itself, or that of Django's `connection`, or of an SQLAlchemy Session or Connection.

    PartboxError if there is none: another driver's, or Django has not connected yet.
    """
    found = conn
    for _ in range(DEPTH):
        if isinstance(found, Connection | AsyncConnection):
            return found
        found = _inner(found)
    name = f"{type(conn).__module__}.{type(conn).__qualname__}"
    raise PartboxError(f"there is no psycopg connection in this {name}: pass one, or commit and pass none")


def _inner(outer: Any) -> Any:
    if hasattr(outer, "ensure_connection"):  # of Django, which connects when it must
        outer.ensure_connection()
        return outer.connection
    for name in _INNER:
        inner = getattr(outer, name, None)
        if inner is not None:
            return inner() if name == "connection" and callable(inner) else inner
    return getattr(outer, "_connection", None)  # the adapter of an asynchronous driver
