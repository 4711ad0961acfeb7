"""Puts a record into any state, as if a worker or an operator had left it there."""

from dataclasses import dataclass
from typing import Any, Literal, get_args
from uuid import UUID

from psycopg import Connection

from partbox.duration import from_now
from partbox.errors import PartboxError
from partbox.events import Event
from partbox.outbox import Outbox
from partbox.testing import statements

State = Literal["pending", "done", "retrying", "deferred", "scheduled", "held", "ready", "dead", "discarded"]

_TIMED = ("retrying", "deferred", "scheduled")
_TRIED = ("retrying", "dead", "discarded")


@dataclass(frozen=True, slots=True)
class Placing:
    """A state with its attempts and its due time; PartboxError if they do not go together."""

    state: str
    attempts: int | None
    due: Any
    error: str | None

    def __post_init__(self) -> None:
        if self.state not in get_args(State):
            raise PartboxError(f"state {self.state!r} must be one of {', '.join(get_args(State))}")
        if self.state in ("pending", "done") and (self.attempts, self.due, self.error) != (None, None, None):
            raise PartboxError(f"a record that is {self.state} has no attempts, due time or error: leave them out")
        if self.due is not None and self.state not in (*_TIMED, "dead"):
            raise PartboxError(f"a record that is {self.state} has no due time: leave due out")

    def values(self, outbox: Outbox, event: Event, subscription: str) -> dict[str, Any]:
        """The columns of the parked row; whether it blocks its key is as the options of its handler say."""
        handler = outbox.handlers.routes(subscription, outbox.settings)[event.event_type, event.aggregate_type]
        waits, dead_waits = handler.on_failure == "block", handler.on_dead == "block"
        blocks = {"retrying": waits, "deferred": waits, "held": True, "ready": True, "dead": dead_waits}
        return {
            "state": self.state,
            "blocks": blocks.get(self.state, False),
            "attempts": int(self.state in _TRIED) if self.attempts is None else self.attempts,
            "due": from_now(self.due) if self.due is not None else 0.0 if self.state in _TIMED else None,
            "error": self.error,
        }


def place(
    conn: Connection[Any], outbox: Outbox, event_id: UUID, event: Event, placing: Placing, subscription: str
) -> int:
    """Put the published event into the state, for the subscription; its record's id."""
    schema = outbox.settings.schema_name
    found = statements.record(conn, schema, subscription, event_id)
    if found is None:
        raise PartboxError(f"there is no subscription {subscription!r}: create it first")
    record_id, is_free = found
    if placing.state != "pending":
        if not is_free:
            raise PartboxError("a worker delivers from this database: stop it before a record is put into a state")
        values = None if placing.state == "done" else placing.values(outbox, event, subscription)
        statements.place(conn, schema, subscription, record_id, values)
    return record_id
