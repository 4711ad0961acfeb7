"""Cancel delayed events in the caller's transaction. See sql/functions/cancel.sql."""

from uuid import UUID

from partbox.db import statements
from partbox.db.operator.actions import current_actor, current_reason
from partbox.db.statements import AnyAsync, AnySync
from partbox.errors import PublishError
from partbox.events import Event, checks
from partbox.publish import integrations
from partbox.publish.failures import ErrorExplainer
from partbox.publish.steps import Query, Steps

CALL_REMEDIES = ("call cancel", "await cancel_async")

# An event, or its id.
Cancellable = Event | UUID | str


def cancel(conn: AnySync, schema: str, event: Cancellable | None, key: str | None) -> bool:
    """Cancel a delayed event, given by itself or its idempotency key. Return True if the cancellation came in time."""
    adapter, cancelling = integrations.sync_adapter_of(conn, CALL_REMEDIES), _cancel_steps(schema, event, key)
    adapter.require_transaction()
    with _CancelErrors(schema):
        return adapter.run(cancelling)


async def cancel_async(conn: AnyAsync, schema: str, event: Cancellable | None, key: str | None) -> bool:
    """Cancel a delayed event in an asynchronous connection's transaction. Return True if it came in time."""
    adapter, cancelling = integrations.async_adapter_of(conn, CALL_REMEDIES), _cancel_steps(schema, event, key)
    await adapter.require_transaction()
    with _CancelErrors(schema):
        return await adapter.run(cancelling)


def _cancel_steps(schema: str, event: Cancellable | None, key: str | None) -> Steps[bool]:
    if (event is None) == (key is None):
        raise PublishError("an event is cancelled by its id or by its idempotency key: give one of them")
    event_id = None if event is None else event.event_id if isinstance(event, Event) else checks.check_uuid(event)
    named = {
        "event_id": event_id,
        "key": None if key is None else checks.check_text("key", key),
        "who": current_actor(),
        "reason": current_reason(),
    }
    return _run_query(Query(statements.cancel(schema), named))


def _run_query(query: Query) -> Steps[bool]:
    ((in_time,),) = yield query
    return bool(in_time)


class _CancelErrors(ErrorExplainer):
    __slots__ = ()
    missing_sqlstates = ("3F000", "42883")  # schema, function
    remedy = "cannot cancel events in this database: run `partbox migrate`, or `partbox init`"
