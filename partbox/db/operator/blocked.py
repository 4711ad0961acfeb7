"""Blocked keys: list their heads and followers, and unblock them in one of two ways."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from partbox.db.operator import actions
from partbox.db.operator.dead import resolve_time_span, split_error
from partbox.db.sql import Conn, fetch_records
from partbox.text.secrets import mask_optional


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """An aggregate whose later events wait because one event has not finished.

    - `record_id`: the event that has not finished, called the head
    - `due_at`: None if the head waits for no time
    - `followers`: the events parked behind the head
    - `more_from_id`: more of its events wait in the log, from this id on; None if all are parked or not read yet
    - `owner`, `node`, `pid`: the process that owns the partition, None if there is none now
    - `traceback`: of the error, as in `DeadRecord`"""

    aggregate_type: str
    aggregate_id: str
    record_id: int
    event_id: UUID | None
    event_type: str
    state: str
    attempts: int
    due_at: datetime | None
    error_type: str | None
    error: str | None
    followers: int
    blocked_since: datetime
    partition: int
    owner: UUID | None
    node: str | None
    pid: int | None
    traceback: str | None = field(default=None, repr=False)
    more_from_id: int | None = None


class Key(NamedTuple):
    """An aggregate whose events one subscription receives in order."""

    subscription: str
    aggregate_type: str
    aggregate_id: str


class Head(NamedTuple):
    """The event that blocks an aggregate, and whether an operator's command has changed the event.

    - `state`: as the command found it"""

    record_id: int
    state: str
    changed: bool


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """Aggregates whose events are blocked for the same reason: same event type, state and error."""

    # Numbers and quoted parts of errors are ignored. The keys have been blocked since times between `since_from` and
    # `since_to`. `followers` are parked behind all of them. The other fields describe the oldest blocking event.

    keys: int
    followers: int
    since_from: datetime
    since_to: datetime
    event_type: str
    state: str
    aggregate_type: str
    aggregate_id: str
    record_id: int
    error_type: str | None
    error: str | None


class TimeBounds(NamedTuple):
    """A filter for aggregates by the time since which they have been blocked.

    - `since`, `until`: blocked at `since` or later, and before `until`. Each is a time, or a number of seconds
      ago."""

    since: datetime | float | None = None
    until: datetime | float | None = None


ANY_TIME = TimeBounds()


def list_keys(
    conn: Conn, schema: str, subscription: str, limit: int, bounds: TimeBounds = ANY_TIME
) -> list[BlockedKey]:
    """List at most `limit` aggregates that are blocked by an unfinished event, the longest blocked first."""
    return [key for _, key in list_keys_of_all(conn, schema, [subscription], limit, bounds)]


def list_keys_of_all(
    conn: Conn, schema: str, subscriptions: Sequence[str], limit: int, bounds: TimeBounds = ANY_TIME
) -> list[tuple[str, BlockedKey]]:
    """List at most `limit` blocked aggregates of each subscription, with the subscription, in one statement."""
    values = {"subscriptions": [*subscriptions], **_query_values(conn, schema, limit, bounds)}
    return fetch_records(conn, _build_key, "blocked_list", schema, **values)


def list_groups(conn: Conn, schema: str, subscription: str, limit: int, bounds: TimeBounds) -> list[BlockedGroup]:
    """Group the blocked aggregates by the type, state and error of the blocking event."""
    # At most `limit` groups are returned, the largest first.
    values = {"subscription": subscription, **_query_values(conn, schema, limit, bounds)}
    return fetch_records(conn, _build_group, "blocked_groups", schema, **values)


def retry_now(conn: Conn, schema: str, key: Key) -> Head | None:
    """Retry at once the event that blocks an aggregate. Return the event, or None if nothing is blocked."""
    # The event is made due now.
    return _change_head(conn, "blocked_retry", schema, key)


def skip(conn: Conn, schema: str, key: Key, *, reason: str | None, error_limit: int) -> Head | None:
    """Give up the event that blocks an aggregate. Return the event, or None if nothing is blocked."""
    # The event becomes dead, so that the next events can go on. `reason` is stored with the action and with the error,
    # which is cut to `error_limit` characters.
    return _change_head(conn, "blocked_skip", schema, key, reason=reason, error_limit=error_limit)


def _change_head(conn: Conn, act: str, schema: str, key: Key, **values: object) -> Head | None:
    target = {"aggregate_type": key.aggregate_type, "aggregate_id": key.aggregate_id}
    for record_id, state, changed, _ in actions.run_action(conn, act, schema, target, **key._asdict(), **values):
        return Head(record_id, state, bool(changed))
    return None


def _query_values(conn: Conn, schema: str, limit: int, bounds: TimeBounds) -> dict[str, object]:
    since, until = resolve_time_span(conn, schema, *bounds)
    return {"limit": limit, "since": since, "until": until}


def _build_group(*row: Any) -> BlockedGroup:
    *known, error = row
    values = (*known, *split_error(error))
    return BlockedGroup(*values)


def _build_key(subscription: str, *row: Any) -> tuple[str, BlockedKey]:
    *head, error, followers, since, partition, owner, node, pid, traceback, more_from = row
    owned_by = (partition, owner, node, pid)
    values = (*head, *split_error(error), followers, since, *owned_by, mask_optional(traceback), more_from)
    return subscription, BlockedKey(*values)
