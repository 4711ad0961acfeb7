"""Gather the evidence for a diagnosis beyond `stats`: the server, other sessions, parked rows, segments, the archive.

Each part is read by one statement in a transaction of its own, with a short `lock_timeout`. A part that cannot be read
is left out and noted, because a diagnosis must not fail when the database is sick."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.errors import Diagnostic, ProgramLimitExceeded

from partbox.db.connect import use_role_search_path
from partbox.db.inspect import facts
from partbox.db.inspect.stats import FEW_LISTED, Overview, read_overview
from partbox.db.operator import blocked
from partbox.db.operator.blocked import BlockedKey
from partbox.db.operator.rebase import is_healthy
from partbox.db.schema import migrate
from partbox.db.sql import Conn, fetch_rows, load_query
from partbox.protocol.segments import EventTrigger

T = TypeVar("T")
Row = TypeVar("Row", bound=NamedTuple)

LOCK_TIMEOUT, SHORT_LOCK_TIMEOUT = "1s", "50ms"  # for each lock, before and after a part has met a taken lock
MAX_SUBSCRIPTIONS = 50  # subscriptions whose blocked keys are read, those with the most
MAX_KEYS = 100  # blocked keys of a subscription that are read, the longest blocked

# A part may fail with these errors while everything else can still be read.
READ_ERRORS = (errors.InsufficientPrivilege, errors.LockNotAvailable, errors.QueryCanceled, errors.UndefinedTable)

WATCHED_USAGE = 0.5
"""The usage from which on the server names the holder, and nobody rings: see `sql/queries/bell.sql`."""


class NotificationQueue(NamedTuple):
    """The fill level of the server's notification queue, and the session that keeps the queue from being emptied.

    - `usage`: all databases of the server share the queue
    - `holder`: the pid of the session, None if the server has not named it"""

    usage: float
    holder: int | None = None


class UnreadPart(NamedTuple):
    """A part of a diagnosis that could not be read, and the reason.

    - `is_forbidden`: a privilege is missing"""

    part: str
    reason: str
    is_forbidden: bool


class Thresholds(NamedTuple):
    """The age limits of a diagnosis in seconds: for recent failures, and for keeping records.

    - `recent_age`: failures up to this age are recent
    - `retention`: records up to this age are kept"""

    recent_age: float
    retention: float


@dataclass(frozen=True, slots=True)
class Evidence:  # one field for each part that is read, of which each check takes some
    """All facts that a diagnosis has read from the database.

    - There is one field for each part. A part that could not be read is None or empty, and listed in `unread`."""

    server: facts.ServerFacts | None = None
    is_original: bool = True  # the cursors were written in this server's cluster
    sequence: facts.SequenceFacts | None = None
    life_error: str | None = None  # why the sequence `life` cannot be read
    access: tuple[facts.WorkerAccess, ...] = ()
    displaced: facts.DisplacedTable | None = None
    triggers: tuple[facts.ForeignTrigger, ...] = ()
    path: tuple[facts.PathSchema, ...] = ()
    sessions: tuple[facts.OpenSession, ...] = ()
    nodes: facts.NodeSessions | None = None
    queue: NotificationQueue | None = None
    lock_holders: tuple[facts.LockHolder, ...] = ()
    waits: tuple[facts.LockWait, ...] = ()
    prepared: tuple[facts.PreparedTransaction, ...] = ()
    slots: tuple[facts.ReplicationSlot, ...] = ()
    tables: tuple[facts.TableFacts, ...] = ()
    segments: facts.SegmentFacts | None = None
    event_triggers: tuple[EventTrigger, ...] = ()
    archive: facts.ArchiveFacts | None = None
    highest_used_id: int | None = None  # the greatest id that is used
    hidden: facts.HiddenRecords | None = None
    overview: Overview | None = None
    keys: tuple[tuple[str, BlockedKey], ...] = ()
    parked_counts: tuple[facts.ParkedCounts, ...] = ()
    deferred: tuple[facts.DeferredRows, ...] = ()
    dead: tuple[facts.DeadRows, ...] = ()
    # By subscription, dead events that the dead-letter hook has not had yet.
    owed_dead_letters: dict[str, int] = field(default_factory=dict)
    suspect_records: tuple[facts.SuspectRecord, ...] = ()
    retention_holds: tuple[facts.RetentionHold, ...] = ()
    expired: facts.ExpiredRecords | None = None
    unread: tuple[UnreadPart, ...] = ()


def gather_evidence(conn: Conn, schema: str, ask: Thresholds) -> Evidence:
    """Read from the database all facts that a diagnosis needs."""
    # The connection is in autocommit mode. Raise `SchemaError` if the schema has another version.
    reader = _PartReader(conn, schema)
    reader.read_part("the version of the schema", lambda: migrate.check_schema_version(conn, schema))
    retain = {"retain": ask.retention}
    seen = reader.read_part("the subscriptions", lambda: _read_overview(conn, schema))
    return Evidence(
        server=reader.read_one(facts.ServerFacts, "doctor_server"),
        sessions=reader.read_all(facts.OpenSession, "doctor_sessions"),
        nodes=reader.read_one(facts.NodeSessions, "doctor_nodes"),
        queue=_read_queue(conn, schema),
        lock_holders=reader.read_all(facts.LockHolder, "doctor_keepers"),
        waits=reader.read_all(facts.LockWait, "doctor_waits"),
        prepared=reader.read_all(facts.PreparedTransaction, "doctor_prepared"),
        slots=reader.read_all(facts.ReplicationSlot, "doctor_slots"),
        tables=reader.read_all(facts.TableFacts, "doctor_tables"),
        # Read before the sequence, which is never behind it.
        highest_used_id=next((highest_used_id for (highest_used_id,) in reader.read_rows("doctor_used")), None),
        hidden=reader.read_one(facts.HiddenRecords, "hidden", subscription=None),
        sequence=reader.read_one(facts.SequenceFacts, "doctor_sequence"),
        life_error=_find_life_error(conn, schema),
        access=reader.read_all(facts.WorkerAccess, "doctor_access"),
        displaced=reader.read_part("the tables", lambda: _find_displaced(conn, schema)),
        triggers=reader.read_all(facts.ForeignTrigger, "doctor_triggers"),
        path=reader.read_part("the search_path", lambda: _read_search_path(conn, schema)) or (),
        is_original=reader.read_part("the marker", lambda: is_healthy(conn, schema)) is not False,
        overview=seen,
        keys=reader.read_part("blocked keys", lambda: _list_blocked_keys(conn, schema, seen)) or (),
        parked_counts=reader.read_all(facts.ParkedCounts, "doctor_open"),
        deferred=reader.read_all(facts.DeferredRows, "doctor_deferred"),
        dead=reader.read_all(facts.DeadRows, "doctor_dead", lately=ask.recent_age),
        owed_dead_letters=dict(reader.read_rows("doctor_letters")),
        suspect_records=reader.read_all(facts.SuspectRecord, "doctor_accused"),
        segments=reader.read_one(facts.SegmentFacts, "doctor_segments"),
        event_triggers=reader.read_all(EventTrigger, "event_triggers"),
        archive=reader.read_one(facts.ArchiveFacts, "doctor_archive"),
        retention_holds=reader.read_all(facts.RetentionHold, "doctor_held", **retain),
        expired=reader.read_one(facts.ExpiredRecords, "doctor_expired", **retain),
        unread=tuple(reader.unread),
    )


def reread_overview(conn: Conn, schema: str, before: Evidence) -> Evidence:
    """Read the state of the subscriptions again. Return the facts of the diagnosis with the new state."""
    # If that fails, the old state stays and the failure is noted.
    reader = _PartReader(conn, schema)
    seen = reader.read_part("the subscriptions, a second time", lambda: _read_overview(conn, schema))
    return replace(before, overview=seen or before.overview, unread=(*before.unread, *reader.unread))


def _read_overview(conn: Conn, schema: str) -> Overview:
    # The checks look at single partitions only where a process works, or where the subscription is one of few.
    return read_overview(conn, schema, working=True, listed=FEW_LISTED)


class _PartReader:
    """A reader of the facts for a diagnosis, which notes a part that it cannot read and goes on.

    - Each part is read in a transaction of its own."""

    def __init__(self, conn: Conn, schema: str) -> None:
        self._conn = conn
        self._schema = schema
        self._patience = LOCK_TIMEOUT
        self.unread: list[UnreadPart] = []

    def read_one(self, kind: type[Row], name: str, **values: Any) -> Row | None:
        return next(iter(self.read_all(kind, name, **values)), None)

    def read_all(self, kind: type[Row], name: str, **values: Any) -> tuple[Row, ...]:
        return tuple(kind(*row) for row in self.read_rows(name, **values))

    def read_rows(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        read = partial(fetch_rows, self._conn, name, self._schema, **values)
        return self.read_part(name.removeprefix("doctor_"), read) or []

    def read_part(self, name: str, read: Callable[[], T]) -> T | None:
        """Call `read` in a transaction of its own. Return its result, or None if it fails."""
        # A part that failed is noted as unread.
        try:
            with self._conn.transaction():
                self._conn.execute(load_query("doctor_patience", self._schema), {"limit": self._patience})
                return read()
        except READ_ERRORS as error:
            if isinstance(error, errors.LockNotAvailable):
                # After one lock timeout others are likely, and the whole should not take minutes.
                self._patience = SHORT_LOCK_TIMEOUT
            self.unread.append(
                UnreadPart(name, _describe_error(error), isinstance(error, errors.InsufficientPrivilege))
            )
            return None


def _read_queue(conn: Conn, schema: str) -> NotificationQueue:
    # Return how full the server's notification queue is, and which session holds it up. The connection must be in
    # autocommit mode.
    (usage,) = conn.execute(load_query("queue_usage", schema), {}).fetchone() or (0.0,)
    return NotificationQueue(usage, _find_queue_holder(conn, schema) if usage >= WATCHED_USAGE else None)


def _find_queue_holder(conn: Conn, schema: str) -> int | None:
    """Return the pid of the session that keeps the notification queue from being emptied."""
    # The pid is the first number in the server's warning about a full queue. The warning is in the server's language.
    pids: list[int] = []

    def note(diagnostic: Diagnostic) -> None:
        pids.extend(map(int, re.findall(r"\d+", diagnostic.message_detail or "")))

    conn.add_notice_handler(note)
    try:
        with suppress(ProgramLimitExceeded):
            conn.execute(load_query("queue_holder", schema), {})
    finally:
        conn.remove_notice_handler(note)
    return pids[0] if pids else None


def _read_search_path(conn: Conn, schema: str) -> tuple[facts.PathSchema, ...]:
    use_role_search_path(conn, here=True)
    return tuple(facts.PathSchema(*row) for row in fetch_rows(conn, "doctor_search_path", schema))


def _find_life_error(conn: Conn, schema: str) -> str | None:
    """Return the error from reading the sequence that identifies the server, or None."""
    # The sequence identifies the server's incarnation.
    try:
        conn.execute(load_query("doctor_life", schema), {})
    except errors.InternalError_ as error:
        return _describe_error(error)
    # Another session may be creating the sequence at this moment.
    except READ_ERRORS:
        pass
    return None


def _find_displaced(conn: Conn, schema: str) -> facts.DisplacedTable | None:
    """Return the outbox table or log segment that is missing or was replaced, or None."""
    # The remedy is returned too.
    try:
        with conn.transaction():
            conn.execute(load_query("intact", schema), {"subscription": None})
    except errors.ObjectNotInPrerequisiteState as error:
        return facts.DisplacedTable(_describe_error(error).removeprefix("partbox: "), error.diag.message_hint or "")
    return None


def _list_blocked_keys(conn: Conn, schema: str, seen: Overview | None) -> tuple[tuple[str, BlockedKey], ...]:
    most = sorted(seen.clusters if seen else (), key=lambda each: -each.blocked_keys)[:MAX_SUBSCRIPTIONS]
    names = sorted(each.subscription for each in most if each.blocked_keys)
    return tuple(blocked.list_keys_of_all(conn, schema, names, MAX_KEYS))


def _describe_error(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).strip()
