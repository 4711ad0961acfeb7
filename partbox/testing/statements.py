"""Statements of the testing kit on a test's database."""

from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection, Connection

from partbox.db.sql import query
from partbox.db.type_conversion import AsyncOwnCursor, OwnCursor
from partbox.errors import PartboxError

Row = tuple[Any, ...]


class HeldEvent(NamedTuple):
    """An event that waits behind another of its key: its record, its attempts, the epoch of its partition."""

    row: Row
    attempts: int
    epoch: int


def published(conn: Connection[Any], schema: str) -> list[Row]:
    """Every record that the transaction of `conn` sees, in the order of the log; a row is what DeliveredEvent takes."""
    with OwnCursor(conn) as cursor:
        return cursor.execute(query("testing_published", schema), binary=True).fetchall()


async def published_async(conn: AsyncConnection[Any], schema: str) -> list[Row]:
    async with AsyncOwnCursor(conn) as cursor:
        await cursor.execute(query("testing_published", schema), binary=True)
        return await cursor.fetchall()


def assign(conn: Connection[Any], schema: str, subscription: str, me: UUID) -> bool:
    """Assign to `me` the unowned partitions that have something to deliver now.

    True if there is something to deliver in these or in the partitions that `me` owns, by their saved state.
    """
    ((found,),) = conn.execute(query("testing_assign", schema), {"subscription": subscription, "me": me}).fetchall()
    return bool(found)


def leave(conn: Connection[Any], schema: str, subscription: str, me: UUID) -> None:
    """Delete the instance and its assignments."""
    conn.execute(query("testing_leave", schema), {"subscription": subscription, "me": me})


def held(conn: Connection[Any], schema: str, subscription: str, me: UUID) -> list[HeldEvent]:
    """The events held behind another of their key since `me` registered."""
    values = {"subscription": subscription, "me": me}
    with OwnCursor(conn) as cursor:
        rows = cursor.execute(query("testing_held", schema), values, binary=True).fetchall()
    return [HeldEvent(row[1:-1], row[0], row[-1]) for row in rows]


def record(conn: Connection[Any], schema: str, subscription: str, event_id: UUID) -> tuple[int, bool] | None:
    """The id of the newest record of an event, and True if nobody owns its partition; None without a subscription."""
    values = {"subscription": subscription, "event_id": event_id}
    return conn.execute(query("testing_record", schema), values).fetchone()


def place(conn: Connection[Any], schema: str, subscription: str, record_id: int, parked: dict[str, Any] | None) -> None:
    """Park a record with these columns; with None the cursor passes it, and it is done."""
    name, values = ("pass", {}) if parked is None else ("park", parked)
    _change(conn, schema, (name,), {"subscription": subscription, "id": record_id, **values})


def advance(conn: Connection[Any], schema: str, seconds: float) -> None:
    """Advance everything that waits for a time by so many seconds."""
    _change(conn, schema, ("advance_parked", "advance_records"), {"seconds": seconds})


def forget(conn: Connection[Any], schema: str) -> None:
    """Delete every record, parked row, idempotency key and inbox row."""
    _change(conn, schema, ("forget_parked", "forget_records", "forget_keys", "forget_inbox"), {})


def _change(conn: Connection[Any], schema: str, names: tuple[str, ...], values: dict[str, object]) -> None:
    """Run these in one transaction, in the lock order of all writers of parked rows; owners reload."""
    with conn.transaction():
        conn.execute(query("testing_lock", schema))
        for name in names:
            conn.execute(query(f"testing_{name}", schema), values)
        conn.execute(query("testing_reload", schema))


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
