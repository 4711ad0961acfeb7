"""Statements of the test kit, which can also put a record into any state as if delivery had led there."""

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args
from uuid import UUID

from psycopg import AsyncConnection, Connection

from partbox.db.sql import Conn, load_query
from partbox.db.type_conversion import AsyncOwnCursor, OwnCursor
from partbox.duration import seconds_until
from partbox.errors import PartboxError
from partbox.events import Event
from partbox.operations.arguments import check_text
from partbox.outbox import Outbox

Row = tuple[Any, ...]


class HeldEvent(NamedTuple):
    """An event that waits behind an earlier event of its key, with the number of its attempts.

    `epoch` is the epoch of its partition."""

    row: Row
    attempts: int
    epoch: int


def published(conn: Conn, schema: str, after: int = 0) -> list[Row]:
    """Return all published records that the connection's transaction sees, in the order of their ids.

    `after` is the id behind which they begin."""
    # The rows are in the form that DeliveredEvent takes.
    with OwnCursor(conn) as cursor:
        return cursor.execute(load_query("testing_published", schema), {"after": after}, binary=True).fetchall()


async def published_async(conn: AsyncConnection[Any], schema: str) -> list[Row]:
    async with AsyncOwnCursor(conn) as cursor:
        await cursor.execute(load_query("testing_published", schema), {"after": 0}, binary=True)
        return await cursor.fetchall()


def assign(conn: Conn, schema: str, subscription: str, me: UUID) -> bool:
    """Assign partitions that have due events and no owner to the instance `me`. Return True if it has events to
    deliver."""
    # The result counts the partitions assigned now and, by their saved state, the partitions that `me` already owns.
    ((found,),) = conn.execute(
        load_query("testing_assign", schema), {"subscription": subscription, "me": me}
    ).fetchall()
    return bool(found)


def leave(conn: Conn, schema: str, subscription: str, me: UUID) -> None:
    """Remove the instance `me` and its partition assignments from a subscription."""
    conn.execute(load_query("testing_leave", schema), {"subscription": subscription, "me": me})


def held(conn: Conn, schema: str, subscription: str, me: UUID) -> list[HeldEvent]:
    """Return the events that were put behind another event of their key after the instance `me` registered."""
    values = {"subscription": subscription, "me": me}
    with OwnCursor(conn) as cursor:
        rows = cursor.execute(load_query("testing_held", schema), values, binary=True).fetchall()
    return [HeldEvent(row[1:-1], row[0], row[-1]) for row in rows]


def advance(conn: Conn, schema: str, seconds: float) -> None:
    """Move the due times of all waiting events earlier, as if this number of seconds had passed."""
    _change_rows(conn, schema, ("advance_parked", "advance_records"), {"seconds": seconds})


def forget(conn: Conn, schema: str) -> None:
    """Delete everything in the outbox: all records, and everything saved about their delivery."""
    # That is also parked rows, idempotency keys, inbox rows, and the history of failed attempts and operators' actions.
    _change_rows(conn, schema, ("forget",), {})


def _change_rows(conn: Conn, schema: str, names: tuple[str, ...], values: dict[str, object]) -> None:
    """Execute statements that change the rows of failed and waiting events, in one transaction."""
    # The transaction has the lock order of all writers of parked rows. Owners of partitions load their parked rows
    # again.
    with conn.transaction():
        conn.execute(load_query("testing_lock", schema))
        for name in names:
            conn.execute(load_query(f"testing_{name}", schema), values)
        conn.execute(load_query("testing_reload", schema))


State = Literal["pending", "done", "retrying", "deferred", "scheduled", "held", "ready", "dead", "discarded"]

MAX_ATTEMPTS: Final = 2**31 - 1

_TIMED = ("retrying", "deferred", "scheduled")
_ATTEMPTED = ("retrying", "dead", "discarded")


@dataclass(frozen=True, slots=True)
class RecordPlacement:
    """A delivery state to give to an event in a test, such as dead, with its attempts, due time and error.

    Raise PartboxError if its fields contradict each other."""

    state: str
    attempts: int | None
    due: Any
    error: str | None

    def __post_init__(self) -> None:
        if self.state not in get_args(State):
            raise PartboxError(f"state {self.state!r} must be one of {', '.join(get_args(State))}")
        if self.attempts is not None and not (type(self.attempts) is int and 0 <= self.attempts <= MAX_ATTEMPTS):
            raise PartboxError(f"attempts = {self.attempts!r} must be a whole number from 0 to {MAX_ATTEMPTS}")
        if self.error is not None:
            check_text("error", self.error)
        if self.state in ("pending", "done") and (self.attempts, self.due, self.error) != (None, None, None):
            raise PartboxError(f"a record that is {self.state} has no attempts, due time or error: leave them out")
        if self.due is not None and self.state not in (*_TIMED, "dead"):
            raise PartboxError(f"a record that is {self.state} has no due time: leave due out")
        try:
            seconds_until(0 if self.due is None else self.due)
        except ValueError as error:
            raise PartboxError(f"due: {error}") from None

    def values(self, outbox: Outbox, event: Event, subscription: str) -> dict[str, Any]:
        """Return the column values of the row that puts a failed or waiting event into this state."""
        # The options of the handler decide whether the row blocks its key.
        handler = outbox.handlers.build_routes(subscription, outbox.settings)[event.event_type, event.aggregate_type]
        waits, dead_waits = handler.on_failure == "block", handler.on_dead == "block"
        blocks = {"retrying": waits, "deferred": waits, "held": True, "ready": True, "dead": dead_waits}
        return {
            "state": self.state,
            "blocks": blocks.get(self.state, False),
            "attempts": int(self.state in _ATTEMPTED) if self.attempts is None else self.attempts,
            "due": seconds_until(self.due) if self.due is not None else 0.0 if self.state in _TIMED else None,
            "error": self.error,
        }


def place(
    conn: Conn, outbox: Outbox, event_id: UUID, event: Event, placement: RecordPlacement, subscription: str
) -> int:
    """Put a published event into a delivery state in one subscription, such as dead. Return its record id."""
    schema = outbox.settings.schema_name
    about = {"subscription": subscription, "event_id": event_id}
    found = conn.execute(load_query("testing_record", schema), about).fetchone()
    if found is None:
        raise PartboxError(f"there is no subscription {subscription!r}: create it first")
    record_id: int
    # The newest record of the event, and whether its partition has no owner.
    record_id, is_free = found
    if placement.state != "pending":
        if not is_free:
            raise PartboxError("a worker delivers from this database: stop it before a record is put into a state")
        # The cursor passes a record that is done. Any other state is a parked row.
        is_done = placement.state == "done"
        columns = {} if is_done else placement.values(outbox, event, subscription)
        values = {"subscription": subscription, "id": record_id, **columns}
        _change_rows(conn, schema, ("pass" if is_done else "park",), values)
    return record_id


# Attributes of Django's and SQLAlchemy's wrappers, from the outside in.
_INNER = ("sync_session", "sync_connection", "driver_connection", "connection")
DEPTH = 6


def find_psycopg(conn: Any) -> "Conn | AsyncConnection[Any]":
    """Return the psycopg connection behind a Django or SQLAlchemy connection. Raise PartboxError if there is none."""
    # A SQLAlchemy Session is taken, too. There is none with another driver.
    found = conn
    for _ in range(DEPTH):
        if isinstance(found, Connection | AsyncConnection):
            return found
        found = _unwrap_connection(found)
    name = f"{type(conn).__module__}.{type(conn).__qualname__}"
    raise PartboxError(f"there is no psycopg connection in this {name}: pass one, or commit and pass none")


def _unwrap_connection(outer: Any) -> Any:
    # Django's wrapper, which connects only on demand.
    if hasattr(outer, "ensure_connection"):
        outer.ensure_connection()
        return outer.connection
    for name in _INNER:
        inner = getattr(outer, name, None)
        if inner is not None:
            return inner() if name == "connection" and callable(inner) else inner
    # The adapter of an asynchronous driver.
    return getattr(outer, "_connection", None)
