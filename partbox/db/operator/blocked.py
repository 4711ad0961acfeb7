"""Blocked keys: their heads and followers, and the two ways to unblock them."""

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import Connection

from partbox.db.operator.dead import time_of, typed
from partbox.db.sql import row, rows


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


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """Blocked keys whose heads are alike: of one event type and state, with one error but for numbers and quoted parts.

    `followers` are parked behind all of them. They have been blocked since a time between `since_from` and `since_to`.
    `aggregate_type`, `aggregate_id`, `record_id` and the error are those of the oldest head.
    """

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


_GROUPED = tuple(each.name for each in fields(BlockedGroup))


class Bounds(NamedTuple):
    """Keys that are blocked since `since` or later, and before `until`: times, or seconds ago."""

    since: datetime | float | None = None
    until: datetime | float | None = None


ALL = Bounds()


def listed(conn: Connection[Any], schema: str, subscription: str, limit: int, bounds: Bounds = ALL) -> list[BlockedKey]:
    """At most `limit` blocked keys, the longest blocked first."""
    values = _values(conn, schema, subscription, limit, bounds)
    return [_key(*each) for each in rows(conn, "blocked_list", schema, **values)]


def groups(conn: Connection[Any], schema: str, subscription: str, limit: int, bounds: Bounds) -> list[BlockedGroup]:
    """At most `limit` groups, the largest first."""
    values = _values(conn, schema, subscription, limit, bounds)
    return [_group(*each) for each in rows(conn, "blocked_groups", schema, **values)]


def retry_now(
    conn: Connection[Any], schema: str, subscription: str, aggregate_type: str, aggregate_id: str
) -> Head | None:
    """Make the head of a key due now; None if the key is not blocked."""
    values = {"subscription": subscription, "aggregate_type": aggregate_type, "aggregate_id": aggregate_id}
    found = row(conn, "blocked_retry_now", schema, **values)
    return Head(*found) if found else None


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
    found = row(conn, "blocked_skip", schema, **values)
    return Head(*found) if found else None


def _values(conn: Connection[Any], schema: str, subscription: str, limit: int, bounds: Bounds) -> dict[str, object]:
    since, until = (time_of(conn, schema, bound) for bound in bounds)
    return {"subscription": subscription, "limit": limit, "since": since, "until": until}


def _group(*row: Any) -> BlockedGroup:
    keys, followers, first, last, *head, error = row
    values = (keys, followers, first.astimezone(UTC), last.astimezone(UTC), *head, *typed(error))
    return BlockedGroup(**dict(zip(_GROUPED, values, strict=True)))


def _key(*row: Any) -> BlockedKey:
    *head, due_at, error, followers, since, partition, owner, node, pid, traceback = row
    due_at = due_at and due_at.astimezone(UTC)
    values = (*head, due_at, *typed(error), followers, since.astimezone(UTC), partition, owner, node, pid, traceback)
    return BlockedKey(**dict(zip(_COLUMNS, values, strict=True)))
