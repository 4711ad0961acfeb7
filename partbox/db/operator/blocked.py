"""Blocked keys: their heads and followers, and the two ways to unblock them."""

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection

from partbox.db.operator.dead import typed
from partbox.db.sql import query


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """An aggregate whose events wait for its head, the record `record_id`.

    `followers` is how many are parked behind it; more may wait in the log. `due_at` is None for a head that waits for
    no time. `owner`, `node` and `pid` are those of the process that has its partition, None if there is none now.
    `traceback`: of the error, as in `DeadRecord`.
    """

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


_COLUMNS = tuple(each.name for each in fields(BlockedKey))


class Head(NamedTuple):
    """The head of a blocked key as a command found it, and whether it changed it."""

    record_id: int
    state: str
    changed: bool


def listed(conn: Connection[Any], schema: str, subscription: str, limit: int) -> list[BlockedKey]:
    """At most `limit` blocked keys, the longest blocked first."""
    rows = conn.execute(query("blocked_list", schema), {"subscription": subscription, "limit": limit})
    return [_key(*row) for row in rows]


def retry_now(
    conn: Connection[Any], schema: str, subscription: str, aggregate_type: str, aggregate_id: str
) -> Head | None:
    """Make the head of a key due now; None if the key is not blocked."""
    values = {"subscription": subscription, "aggregate_type": aggregate_type, "aggregate_id": aggregate_id}
    row = conn.execute(query("blocked_retry_now", schema), values).fetchone()
    return Head(*row) if row else None


def skip(
    conn: Connection[Any],
    schema: str,
    subscription: str,
    aggregate_type: str,
    aggregate_id: str,
    *,
    reason: str,
    error_limit: int,
) -> Head | None:
    """Bury the head of a key without blocking; None if the key is not blocked."""
    values = {
        "subscription": subscription,
        "aggregate_type": aggregate_type,
        "aggregate_id": aggregate_id,
        "reason": reason,
        "error_limit": error_limit,
    }
    row = conn.execute(query("blocked_skip", schema), values).fetchone()
    return Head(*row) if row else None


def _key(*row: Any) -> BlockedKey:
    *head, due_at, error, followers, since, partition, owner, node, pid, traceback = row
    due_at = due_at and due_at.astimezone(UTC)
    values = (*head, due_at, *typed(error), followers, since.astimezone(UTC), partition, owner, node, pid, traceback)
    return BlockedKey(**dict(zip(_COLUMNS, values, strict=True)))
