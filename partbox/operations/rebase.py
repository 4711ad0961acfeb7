"""Rebase: makes a logical copy of a schema, from a dump or logical replication, usable in its new cluster."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from psycopg.errors import LockNotAvailable

from partbox.db.operator import rebase as steps
from partbox.db.operator.rebase import KnownInstance, Problem, Rebased
from partbox.db.schema.lock_retry import describe_blockers, list_blockers
from partbox.db.session import open_session
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.operations import arguments
from partbox.settings import Settings
from partbox.text.wording import format_count, format_names, shorten_text

log = logging.getLogger("partbox.commands")

CHECK_INTERVAL = 0.05  # seconds between two reads of the heartbeats
# Seconds between two attempts to lock out the publishers, who go on meanwhile.
RETRY_PAUSE = 1.0

REFUSALS: dict[Problem, str] = {
    "healthy": "schema {!r} is healthy: its cursors belong to this cluster, and workers can start; nothing was changed "
    "(--force rebases it anyway)",
    "workers": "a worker has become active on schema {!r} meanwhile, and nothing was changed: stop it and try again",
}

# Called with a text when the reason for waiting changes.
Progress = Callable[[str], None]


def check_rebase_needed(dsn: Callable[[], str], settings: Settings, *, force: bool = False) -> None:
    """Raise PartboxError if a rebase is unnecessary because the schema is healthy, unless `force` is set."""
    # Called before the user is asked to confirm, because the rebase would be refused at once.
    with open_session(dsn, settings, "partbox rebase") as conn:
        _refuse_healthy(conn, settings.schema_name, force)


def rebase(
    dsn: Callable[[], str],
    settings: Settings,
    *,
    force: bool = False,
    timeout: arguments.Length,
    progress: Progress = lambda what: None,
) -> Rebased:
    """Make a restored or copied outbox schema usable in its new database cluster, in one transaction."""
    # The schema is adapted to the transaction ids of the cluster.
    # Waits at most `timeout` for publishers to end their transactions. Raises PartboxError if the schema is healthy
    # (unless `force` is set), if workers are alive, or if the timeout passes. Raises psycopg.Error for the database.
    patience, schema = arguments.parse_length("timeout", timeout), settings.schema_name
    with open_session(dsn, settings, "partbox rebase") as conn:
        _refuse_healthy(conn, schema, force)
        dead = _await_silence(conn, schema, progress)
        done = _retry_rebase(conn, schema, dead, force, patience, progress)
    if isinstance(done, str):
        raise PartboxError(REFUSALS[done].format(schema))
    text, of = "schema %r is rebased: %s, %s parked", format_count(len(done.subscriptions), "subscription")
    late = format_count(sum(each.parked for each in done.subscriptions), "late record")
    log_event(log, "command", text, schema, of, late, command="rebase")
    return done


def _retry_rebase(
    conn: Conn, schema: str, dead: dict[UUID, datetime], force: bool, patience: float, progress: Progress
) -> Rebased | Problem:
    """Repeat the rebase until the database grants the locks or `patience` seconds have passed."""
    # Between two attempts, transactions that queue behind the locks proceed.
    end = time.monotonic() + patience
    while True:
        try:
            return steps.rebase_schema(conn, schema, dead, force=force)
        except LockNotAvailable:
            found = describe_blockers(list_blockers(conn, "rebase_holders", schema))
        if time.monotonic() >= end:
            raise PartboxError(
                f"after {patience:g} s {found} still in the way, and nothing was changed: end what is open, or wait "
                "longer with --timeout"
            )
        progress(f"{found} in the way")
        time.sleep(RETRY_PAUSE)


def _await_silence(conn: Conn, schema: str, progress: Progress) -> dict[UUID, datetime]:
    """Wait until all registered worker processes prove to be dead. Raise PartboxError if one still sends heartbeats."""
    # A heartbeat within its lease comes from a living worker, or is a row of the dump. A row of the dump does not
    # change, so an instance counts as dead if its heartbeat does not change for the length of its lease.
    # Returns the last heartbeat of each worker process that the schema lists, by instance id. The error names the
    # living instances, whose heartbeats have changed.
    first, since = steps.list_instances(conn, schema), time.monotonic()
    heartbeats = {each.instance_id: each.heartbeat_at for each in first}
    found = first
    while doubtful := [each for each in found if each.lease_left > 0 and time.monotonic() - since < each.lease]:
        progress(f"new heartbeats of {_describe_instances(doubtful)}, which only running workers send")
        time.sleep(CHECK_INTERVAL)
        found = steps.list_instances(conn, schema)
        alive = [each for each in found if heartbeats.get(each.instance_id) != each.heartbeat_at]
        if alive:
            raise PartboxError(
                f"workers are running on schema {schema!r}: {_describe_instances(alive)}; stop them and try again"
            )
    return heartbeats


def _refuse_healthy(conn: Conn, schema: str, force: bool) -> None:
    if not force and steps.is_healthy(conn, schema):
        raise PartboxError(REFUSALS["healthy"].format(schema))


def _describe_instances(found: Sequence[KnownInstance]) -> str:
    return (
        f"{format_count(len(found), 'process')} "
        f"({format_names([f'{shorten_text(each.node, 60)} {each.pid}' for each in found])})"
    )
