"""The instance table: registration, heartbeats, long-running handlers, burial, and the plan."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple, TypedDict, Unpack
from uuid import UUID

import orjson

from partbox.db.blocking import array_literal, fetch
from partbox.db.sql import Conn, one_row, query, records, row, rows


class Member(NamedTuple):
    """An instance of the subscription; `left`: the rest of its lease (seconds), by the database's clock."""

    instance_id: UUID
    node: str
    heartbeat_at: datetime
    draining: bool
    left: float
    lease: float


class Renewal(NamedTuple):
    """A heartbeat that the database took at `at`, or right after; `before`: the one that it had until then."""

    before: datetime
    at: datetime


class MembershipView(NamedTuple):
    """A look at a subscription.

    `clock`: the server's. `membership_version` changes whenever somebody joins, leaves or drains. `unassigned`: a
    partition has no assignee; `orphaned`: one has an owner that is gone. `late`: the members that nobody has heard of
    for a while.
    """

    clock: datetime
    membership_version: tuple[int, int]
    nodes: int
    unassigned: bool
    orphaned: bool
    late: list[Member]


@dataclass(frozen=True, slots=True)
class RunningHandler:
    """A handler that has run for `seconds`, with its event; of a list, the first. Texts are cut, and may hold anything.

    `instance.running` is an array of such objects, but with `since` by the database's clock, taken when it writes: so
    ages are read by one clock, whatever the hosts say. A last object counts, as `more`, the handlers that do not fit.
    """

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
    """The lifespan that a process has been in for `seconds`; it works once that yields.

    Until then it has a row that is leaving from the first, so that it gets no partitions. `instance.running` has an
    object with the name.
    """

    lifespan: str
    seconds: float


class InstanceColumns(TypedDict):
    """The columns that all processes of a node have alike; `lease` in seconds."""

    subscription: str
    node: str
    hostname: str
    version: str
    lease: float


def register(
    conn: Conn, schema: str, *, pids: Sequence[int], supervisor: UUID | None = None, **columns: Unpack[InstanceColumns]
) -> dict[int, UUID]:
    """Insert a row for each process; returns instance ids by pid. `supervisor` tells two nodes of one host apart."""
    found = rows(conn, "register", schema, pids=list(pids), supervisor=supervisor, **columns)
    return {pid: instance for instance, pid in found}


def heartbeat(conn: Conn, schema: str, draining: dict[UUID, bool]) -> dict[UUID, Renewal]:
    """Renew these instances, each draining or not; returns the heartbeats of those that still exist.

    One that is not renewed may exist all the same: the function tells.
    """
    found: list[Any] = []
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
    """Store the long-running handlers of this process, and how many `more`; with none the column becomes null."""
    stored = [*map(asdict, running), *([{"more": more}] if more else [])]
    conn.execute(query("note_running", schema), {"instance": instance, "running": orjson.dumps(stored).decode()})


def parse_running(stored: list[dict[str, Any]] | None, at: datetime) -> tuple[tuple[RunningHandler, ...], int]:
    """The handlers stored in a row, as of `at`, and how many more there are."""
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
    """Store that a process is in its lifespan, in the transaction that has made its row."""
    conn.execute(query("note_lifespan", schema), {"instance": instance, **asdict(lifespan)})


def parse_lifespan(stored: list[dict[str, Any]] | None, at: datetime) -> LifespanState | None:
    """The lifespan that the process of a row is in, as of `at`."""
    for each in stored or []:
        if "lifespan" in each:
            return LifespanState(each["lifespan"], max(0.0, at.timestamp() - each["entered"]))
    return None


def leave(conn: Conn, schema: str, instance: UUID) -> None:
    """Note that the instance was told to stop; does not renew it."""
    conn.execute(query("leave", schema), {"instance": instance})


def note_handled_types(
    conn: Conn, schema: str, instance: UUID, subscription: str, types: Sequence[tuple[str, str | None]]
) -> None:
    """Store the event types that a process handles, each with its aggregate type or None, or that it still does."""
    values = {"instance": instance, "subscription": subscription, "types": orjson.dumps(types).decode()}
    conn.execute(query("note_handled_types", schema), values)


def watch(conn: Conn, schema: str, subscription: str, since: datetime | None) -> MembershipView:
    """Look at a subscription; late are those who have not beaten for a quarter of their lease, or `since` a time."""
    ((clock, membership_version, count, nodes, unassigned, orphaned, *late),) = fetch(
        conn, "watch", schema, {"subscription": subscription, "since": since}
    )
    columns = [column or [] for column in late]  # nobody: no array
    return MembershipView(clock, (membership_version, count), nodes, unassigned, orphaned, [*map(Member, *columns)])


def members(conn: Conn, schema: str, subscription: str) -> list[Member]:
    """Every instance of the subscription."""
    return records(conn, Member, "members", schema, subscription=subscription)


def assignees(conn: Conn, schema: str, subscription: str) -> list[UUID | None]:
    """The assignee of each partition; empty while the subscription is paused or missing."""
    return [assignee for (assignee,) in rows(conn, "assignees", schema, subscription=subscription)]


def bury(conn: Conn, schema: str, victims: Sequence[UUID], *, known_dead: bool) -> tuple[list[UUID], int]:
    """Delete the victims (only expired ones unless `known_dead`) and free all orphaned partitions; returns the deleted
    instances and the number of partitions freed."""
    deleted, freed = one_row(conn, "bury", schema, victims=list(victims), known_dead=known_dead)
    return deleted, freed


def plan(
    conn: Conn,
    schema: str,
    subscription: str,
    members: Sequence[UUID],
    seen: Sequence[UUID | None],
    planned: Sequence[UUID | None],
) -> bool:
    """Apply the plan if members and assignees are still as seen; False if not."""
    values = {"members": sorted(members), "seen": list(seen), "planned": list(planned)}
    return _is_true(conn, "plan", schema, subscription=subscription, **values)


def subscribed(conn: Conn, schema: str, subscription: str) -> bool:
    """True if the subscription exists."""
    return _is_true(conn, "subscribed", schema, subscription=subscription)


def _is_true(conn: Conn, name: str, schema: str, **values: object) -> bool:
    found = row(conn, name, schema, **values)
    return bool(found and found[0])
