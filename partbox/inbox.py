"""The inbox: the events that a consumer has seen, so that an event that comes twice has its effect once.

    with psycopg.connect(dsn) as conn, conn.transaction():
        if inbox.first_time(conn, event, "billing"):
            conn.execute("update account set balance = balance - 42 where id = 7")

The row and the effect share the caller's transaction, on any connection that events can be published on. A row is kept
for `retain_inbox`, and duplicates are recognised for that long. `partbox init --inbox-only` creates the table in
another PostgreSQL database, for consumers behind a broker."""

import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from partbox.classes import kind_of
from partbox.db import statements
from partbox.db.statements import AnyAsync, AnySync
from partbox.errors import PartboxError
from partbox.events import DeliveredEvent, Event
from partbox.publish import integrations
from partbox.publish.failures import ErrorExplainer
from partbox.publish.steps import Query, Steps

AnyEvent = DeliveredEvent | Event | UUID | str

LONGEST = 255
_CALLS = ("call first_time", "await first_time_async")
TRIGGER_BLOCKS_INBOX = (
    "a trigger keeps rows out of table {}.inbox, so a second delivery of an event would go unnoticed: drop the "
    "trigger, and try the transaction again"
)
_CONFLICT_LINE = "Conflicting Tuples: 1"


def first_time(conn: AnySync, event_or_id: AnyEvent, consumer: str, *, schema: str = "partbox") -> bool:
    """Return True the first time that `consumer` sees an event, and record that in the caller's transaction.

    The event is given as a handler gets it, or by its id as a UUID or text. `consumer` names the effect that must not
    happen twice (1 to 255 characters). If another open transaction has recorded the same, this call waits for its end.
    Raise PublishError outside a transaction, SchemaError if there is no inbox, and PartboxError if the event or the
    name is wrong or if a trigger keeps the row from being written."""
    adapter = integrations.sync_adapter_of(conn, _CALLS)
    query_steps = _record_first_time(schema, _build_values(event_or_id, consumer))
    adapter.require_transaction()
    with _InboxErrorExplainer(schema):
        return adapter.run(query_steps)


async def first_time_async(conn: AnyAsync, event_or_id: AnyEvent, consumer: str, *, schema: str = "partbox") -> bool:
    """Return True the first time `consumer` sees an event, and record that in the async connection's transaction."""
    adapter = integrations.async_adapter_of(conn, _CALLS)
    query_steps = _record_first_time(schema, _build_values(event_or_id, consumer))
    await adapter.require_transaction()
    with _InboxErrorExplainer(schema):
        return await adapter.run(query_steps)


@dataclass(frozen=True, slots=True)
class Inbox:
    """The memory of the events that each consumer has seen, so that no event takes effect twice.

    An inbox belongs to one schema. `outbox.inbox` is the inbox of the outbox's schema."""

    schema: str

    def first_time(self, conn: AnySync, event_or_id: AnyEvent, consumer: str) -> bool:
        """Return True if `consumer` sees the event for the first time, and record that in the transaction of `conn`."""
        return first_time(conn, event_or_id, consumer, schema=self.schema)

    async def first_time_async(self, conn: AnyAsync, event_or_id: AnyEvent, consumer: str) -> bool:
        """Return True if `consumer` sees the event for the first time, and record that in the transaction of `conn`, an
        asynchronous connection."""
        return await first_time_async(conn, event_or_id, consumer, schema=self.schema)


def _record_first_time(schema: str, values: dict[str, object]) -> Steps[bool]:
    if (yield Query(statements.inbox_first_time(schema), values)):
        return True
    plan = yield Query(statements.inbox_seen(schema), values)
    if not any(_CONFLICT_LINE in line for (line,) in plan):
        raise PartboxError(TRIGGER_BLOCKS_INBOX.format(schema))
    return False


def _build_values(event_or_id: AnyEvent, consumer: str) -> dict[str, object]:
    # PostgreSQL cannot store NUL or surrogates.
    is_text = isinstance(consumer, str) and not re.search("[\0\ud800-\udfff]", consumer)
    if not (is_text and 1 <= len(consumer) <= LONGEST):
        raise PartboxError(
            f"a consumer is named by 1 to {LONGEST} characters without NUL or surrogates, not {consumer!r}"
        )
    return {"consumer": consumer, "event_id": _parse_event_id(event_or_id)}


def _parse_event_id(event_or_id: AnyEvent) -> UUID:
    if isinstance(event_or_id, DeliveredEvent | Event):
        return event_or_id.event_id
    if isinstance(event_or_id, UUID):
        return event_or_id
    cls: Any = type(event_or_id)
    if kind_of(cls) is not None:
        raise PartboxError(
            f"an instance of {cls.__qualname__} has no event id: have the handler ask for the event too, as in (order: "
            f"{cls.__qualname__}, event: DeliveredEvent)"
        )
    try:
        return UUID(event_or_id)
    except (ValueError, AttributeError, TypeError):
        raise PartboxError(f"{event_or_id!r} is neither an event nor an event id: give the event or its UUID") from None


class _InboxErrorExplainer(ErrorExplainer):
    __slots__ = ()
    # SQLSTATEs of a missing table and a missing schema.
    missing_sqlstates = ("42P01", "3F000")
    remedy = "has no inbox in this database: run `partbox init`, or `partbox init --inbox-only`"
