"""Subscriptions: create them, pause and resume them, move their cursors, and drop them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from psycopg import ClientCursor

from partbox.db.operator import actions
from partbox.db.sql import Conn, fetch_first_row, fetch_one_row, fetch_records, load_query
from partbox.errors import SchemaError
from partbox.protocol.lease import Heartbeat

# Seconds for which the creation of a subscription waits for open transactions, and between two looks at them.
SETTLE_SECONDS, SETTLE_PAUSE = 1.0, 0.01

Problem = Literal["missing", "resumed", "owners", "instances", "purged"]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription in a list: its event types, its backlog, and whether it is paused.

    - `types`: the event types that it wants, None for every type
    - `pending`: records above its cursors, an estimate unless `exact`
    - `parked`: events that it could not finish at once and that are not dead"""

    name: str
    created_at: datetime
    paused_at: datetime | None
    types: tuple[str, ...] | None
    instances: int
    pending: int
    exact: bool
    parked: int
    dead: int


class Holder(NamedTuple):
    """A worker process of a subscription, or a former process that still owns partitions of the subscription.

    - All fields of a former process but the id and `owned_partitions` are None.
    - `lease_left`: the rest of the lease in seconds"""

    instance_id: UUID
    node: str | None
    pid: int | None
    heartbeat_at: datetime | None
    lease_left: float | None
    lease: float | None
    owned_partitions: int

    @property
    def last_heartbeat(self) -> Heartbeat | None:
        """The last heartbeat of the worker process. None if it is not registered any more."""
        # A process that is not registered may own partitions all the same.
        if self.heartbeat_at is None or self.lease_left is None or self.lease is None:
            return None
        return Heartbeat(self.instance_id, self.heartbeat_at, self.lease_left, self.lease)


class ReplayRange(NamedTuple):
    """The range of records that a replay would deliver again.

    - `is_ahead`: the time of the replay is in the future
    - `purged`: records up to this id may be purged"""

    is_ahead: bool
    newest: int
    purged: int | None


class ReplayResult(NamedTuple):
    """The result of replaying a subscription: the number of partitions set back, or the problem.

    - `problem`: None if the subscription was set back
    - `purged`: records up to this id may be purged
    - `rewound`: the number of partitions set back"""

    problem: Problem | None
    purged: int | None
    rewound: int


def create(
    conn: Conn, schema: str, name: str, beginning: bool, since: datetime | None, types: Sequence[str] | None
) -> bool:
    """Create a subscription that starts at a chosen place in the log. Return False if the name is taken."""
    # The place is the `beginning`, the time `since`, or now.
    wanted = None if types is None else list(types)
    target = {"start": "beginning" if beginning else since or "now", "types": wanted}
    values = {"name": name, "beginning": beginning, "since": since, "types": wanted}
    values["settled"] = 0 if beginning else _find_settled_id(conn, schema)
    values |= actions.build_action_values("subscription create", target) | {"subscription": name}
    # Three statements are sent in one message. The protocol binds parameters to a single statement only, so they are
    # merged here.
    with ClientCursor(conn) as cursor:
        cursor.execute(load_query("subscription_create", schema), values)
        while cursor.nextset():
            pass
        return cursor.rowcount > 0


def _find_settled_id(conn: Conn, schema: str) -> int:
    # Return the highest record id drawn by now, up to which no more records will appear, as soon as that is certain.
    # Return 0 if a transaction that may have drawn a lower id stays open. Without this floor, the first search of a
    # subscription for late records would begin at the first record of the log.
    (drawn_id,) = fetch_one_row(conn, "subscription_settled_id", schema)
    (bound,) = fetch_one_row(conn, "subscription_bound", schema)
    end = time.monotonic() + SETTLE_SECONDS
    while not fetch_one_row(conn, "subscription_settled", schema, bound=bound)[0]:
        if time.monotonic() > end:
            return 0
        time.sleep(SETTLE_PAUSE)
    return drawn_id or 0


def find_wanted_types(conn: Conn, schema: str, subscription: str) -> frozenset[str] | None:
    """Return the event types that a subscription wants, or None for all."""
    # Raise `SchemaError` if the subscription does not exist.
    found = fetch_first_row(conn, "subscription_filters", schema, subscription=subscription)
    if found is None:
        raise SchemaError(
            f"subscription {subscription!r} does not exist in schema {schema!r} (any more): check the name"
        )
    return None if found[0] is None else frozenset(found[0])


def is_paused(conn: Conn, schema: str, subscription: str) -> bool | None:
    """Return whether a subscription is paused, or None if the subscription does not exist."""
    found = fetch_first_row(conn, "subscription_paused", schema, subscription=subscription)
    return None if found is None else found[0]


def pause(conn: Conn, schema: str, subscription: str, before: str | None = None) -> bool | None:
    """Pause the delivery of events. True if the subscription was running, None if it does not exist."""
    # `before` names another action that follows, for the record.
    return _switch_delivery(conn, "subscription_pause", schema, subscription, before=before)


def resume(conn: Conn, schema: str, subscription: str) -> bool | None:
    """Resume the delivery of events. True if the subscription was paused, None if it does not exist."""
    return _switch_delivery(conn, "subscription_resume", schema, subscription)


def _switch_delivery(conn: Conn, act: str, schema: str, subscription: str, **target: str | None) -> bool | None:
    found = actions.run_action(conn, act, schema, target, subscription=subscription)
    return bool(found[0][0]) if found and found[0][0] is not None else None


def list_holders(conn: Conn, schema: str, subscription: str) -> list[Holder]:
    """Return the worker processes of a subscription, and former ones that still own its partitions."""
    return fetch_records(conn, Holder, "subscription_holders", schema, subscription=subscription)


def find_replay_range(conn: Conn, schema: str, from_id: int | None, from_time: datetime | None) -> ReplayRange:
    """Return the range of records that a replay from this id or time would deliver."""
    # The result says too up to which id they may be purged.
    return ReplayRange(*fetch_one_row(conn, "subscription_reach", schema, from_id=from_id, from_time=from_time))


def replay(
    conn: Conn, schema: str, subscription: str, from_id: int | None, from_time: datetime | None, resume: bool
) -> ReplayResult:
    """Deliver events again to a paused subscription, from a record id or a time on."""
    # The subscription is set back. No process may own its partitions. `resume` resumes it in the same transaction.
    values = {"from_id": from_id, "from_time": from_time, "resume": resume}
    return ReplayResult(
        *actions.run_action(conn, "subscription_replay", schema, values, subscription=subscription, **values)[0]
    )


def drop(conn: Conn, schema: str, subscription: str) -> Problem | None:
    """Delete a paused subscription that no worker uses. Return the obstacle, or None on success."""
    # No process may own its partitions, and it must have no instances.
    problem: Problem | None = actions.run_action(conn, "subscription_drop", schema, {}, subscription=subscription)[0][0]
    return problem
