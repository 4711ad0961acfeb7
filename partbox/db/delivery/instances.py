"""The instance table: registration, heartbeats, long-running handlers, burial, and the plan."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, Unpack
from uuid import UUID

import orjson

from partbox.db.blocking import array_literal, fetch
from partbox.db.sql import Conn, fetch_first_row, fetch_one_row, fetch_records, fetch_rows, load_query


class Member(NamedTuple):
    """A registered worker process, with its last heartbeat and the seconds until its lease ends.

    - `lease_left`: the rest of its lease in seconds, by the database's clock"""

    instance_id: UUID
    node: str
    heartbeat_at: datetime
    is_draining: bool
    lease_left: float
    lease: float


class Renewal(NamedTuple):
    """The times of a worker's latest heartbeat and of the heartbeat before.

    - `before`: the database took the previous heartbeat at this time
    - `at`: the database took the new heartbeat at this time or right after"""

    before: datetime
    at: datetime


class MembershipView(NamedTuple):
    """A snapshot of a subscription: which workers lack a recent heartbeat, and whether partitions lack a worker."""

    clock: datetime  # the server's time
    membership_version: tuple[int, int]  # changes whenever a process joins, leaves or drains
    nodes: int
    has_unassigned: bool  # a partition has no assignee
    has_orphaned: bool  # a partition has an owner that is gone
    late_members: list[Member]  # members without a recent heartbeat, the only candidates for a burial


@dataclass(frozen=True, slots=True)
class RunningHandler:
    """A call of an event handler that has been running for `seconds`, and the event that the call handles.

    - The event is the first of a list if the handler takes a list.
    - Texts are cut and may hold anything."""

    handler: str
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    record_id: int
    seconds: float
    partition: int | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class LifespanState:
    """The start-up code (lifespan) that a worker process is still running, and the seconds since its start.

    - The process works once the lifespan yields. Until then its row counts as leaving, so that it gets no
      partitions."""

    lifespan: str
    seconds: float


class InstanceColumns(TypedDict):
    """The database columns that are the same for all worker processes of a node (a group of processes).

    - `lease`: in seconds"""

    subscription: str
    node: str
    hostname: str
    version: str
    lease: float


def register_instances(
    conn: Conn, schema: str, *, pids: Sequence[int], supervisor: UUID | None = None, **columns: Unpack[InstanceColumns]
) -> dict[int, UUID]:
    """Register new worker processes in the database. Return their instance ids by pid."""
    # One instance row is inserted per process. `supervisor` distinguishes two nodes of one host.
    found = fetch_rows(conn, "register", schema, pids=list(pids), supervisor=supervisor, **columns)
    return {pid: instance for instance, pid in found}


def list_strays(conn: Conn, schema: str, supervisor: UUID, known: Sequence[UUID]) -> list[UUID]:
    """Return the instances that a supervisor has registered and does not know, as the answer was lost."""
    return [found for (found,) in fetch_rows(conn, "strays", schema, supervisor=supervisor, known=list(known))]


def renew_heartbeats(conn: Conn, schema: str, draining: dict[UUID, bool]) -> dict[UUID, Renewal]:
    """Renew the heartbeats of worker processes. Return the new times of all processes that still exist."""
    # The processes are given by instance id with whether each is draining. An instance that the short statement did not
    # renew may exist all the same: the SQL function decides.
    found: list[Any] = []
    # The single row needs no order of locks, so it takes a plain update instead of a function.
    if len(draining) == 1:
        ((instance, leaves),) = draining.items()
        found = fetch(conn, "heartbeat_of_one", schema, {"instance": instance, "draining": leaves})
    if not found:
        found = fetch(
            conn,
            "heartbeat",
            schema,
            {"instances": array_literal(draining), "draining": array_literal(draining.values())},
        )
    return {instance: Renewal(before, at) for instance, before, at in found}


def note_running(conn: Conn, schema: str, instance: UUID, running: Sequence[RunningHandler], more: int) -> None:
    """Store in a worker's database row the handler calls that have been running for long."""
    # `more` is the number of further calls.
    # The column `instance.running` is an array of `RunningHandler` objects with `since` in place of `seconds`. The
    # database computes `since` when it writes, so the clocks of hosts do not matter. The last object counts, as `more`,
    # the handlers that do not fit.
    # The column is null if there are none.
    stored = [*map(asdict, running), *([{"more": more}] if more else [])]
    conn.execute(load_query("note_running", schema), {"instance": instance, "running": orjson.dumps(stored).decode()})


def parse_running(stored: list[dict[str, Any]] | None, at: datetime) -> tuple[tuple[RunningHandler, ...], int]:
    """Parse the stored list of a worker's long-running handler calls. Return the calls and the number of others."""
    # The handlers' ages are calculated for the time `at`. Unknown fields are ignored.
    objects, known = stored or [], {each.name for each in fields(RunningHandler)}
    running = [
        RunningHandler(
            **{name: each[name] for name in known & each.keys()}, seconds=max(0.0, at.timestamp() - each["since"])
        )
        for each in objects
        if "since" in each
    ]
    return tuple(running), sum(each.get("more", 0) for each in objects)


def note_lifespan(conn: Conn, schema: str, instance: UUID, lifespan: LifespanState) -> None:
    """Store that a worker process still runs its start-up code and takes no work yet."""
    # Call it in the transaction that inserted the row of the process.
    conn.execute(load_query("note_lifespan", schema), {"instance": instance, **asdict(lifespan)})


def parse_lifespan(stored: list[dict[str, Any]] | None, at: datetime) -> LifespanState | None:
    """Return the stored start-up state of a worker process, or None if the process is not starting up."""
    # The column `instance.running` of a process that is starting up holds an object with the name of its lifespan.
    # The age of the lifespan is that at the time `at`. The text is a stored column of an instance.
    for each in stored or []:
        if "lifespan" in each:
            return LifespanState(each["lifespan"], max(0.0, at.timestamp() - each["entered"]))
    return None


def mark_leaving(conn: Conn, schema: str, instance: UUID) -> None:
    """Mark a worker process as stopping, so that others stop counting on it."""
    # Its row then says draining. Its heartbeat is not renewed.
    conn.execute(load_query("leave", schema), {"instance": instance})


def note_handled_types(
    conn: Conn, schema: str, instance: UUID, subscription: str, types: Sequence[tuple[str, str | None]]
) -> None:
    """Store the event types that a worker process handles, each with its aggregate type or None."""
    # The list includes types that the process still handles.
    values = {"instance": instance, "subscription": subscription, "types": orjson.dumps(types).decode()}
    conn.execute(load_query("note_handled_types", schema), values)


def read_membership(conn: Conn, schema: str, subscription: str, since: datetime | None) -> MembershipView:
    """Read which workers of a subscription may be dead, and whether partitions need a new worker."""
    # Late members had no heartbeat for a quarter of their lease, or after `since`.
    ((clock, membership_version, count, nodes, unassigned, orphaned, *late),) = fetch(
        conn, "watch", schema, {"subscription": subscription, "since": since}
    )
    # With no late member the arrays are null.
    columns = [column or [] for column in late]
    return MembershipView(clock, (membership_version, count), nodes, unassigned, orphaned, [*map(Member, *columns)])


def list_members(conn: Conn, schema: str, subscription: str) -> list[Member]:
    """Return all worker processes that are registered for a subscription."""
    return fetch_records(conn, Member, "members", schema, subscription=subscription)


def list_assignees(conn: Conn, schema: str, subscription: str) -> list[UUID | None]:
    """Return the worker instance that each partition is assigned to, in the order of partitions."""
    # The list is empty if the subscription is paused or missing.
    return [assignee for (assignee,) in fetch_rows(conn, "assignees", schema, subscription=subscription)]


def bury_instances(conn: Conn, schema: str, victims: Sequence[UUID], *, known_dead: bool) -> tuple[list[UUID], int]:
    """Delete the rows of dead worker processes and free their partitions."""
    # Free all partitions whose owner is gone. Return the deleted instances and the number of partitions freed. Only
    # instances among `victims` whose lease has expired are deleted, unless `known_dead`.
    deleted, freed = fetch_one_row(conn, "bury", schema, victims=list(victims), known_dead=known_dead)
    return deleted, freed


def assign_partitions(
    conn: Conn,
    schema: str,
    subscription: str,
    members: Sequence[UUID],
    seen: Sequence[UUID | None],
    planned: Sequence[UUID | None],
) -> bool:
    """Assign partitions to worker processes. Return False if workers or assignments have changed meanwhile."""
    # With False, nothing was changed.
    # The partitions are assigned as `planned`. The situation has changed if the members or the `seen` assignees are not
    # the same as when the plan was made.
    values = {"members": sorted(members), "seen": list(seen), "planned": list(planned)}
    return _is_true(conn, "plan", schema, subscription=subscription, **values)


def is_subscribed(conn: Conn, schema: str, subscription: str) -> bool:
    return _is_true(conn, "subscribed", schema, subscription=subscription)


def _is_true(conn: Conn, name: str, schema: str, **values: object) -> bool:
    found = fetch_first_row(conn, name, schema, **values)
    return bool(found and found[0])
