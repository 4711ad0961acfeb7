"""Adopting a logical copy: a schema that came from a dump, or by logical replication, goes on in this cluster.

Whose heartbeat is within its lease may be a worker or just a row of the dump. A row of a dump does not change: who is
silent for as long as its lease is one.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from psycopg.errors import LockNotAvailable

from partbox.db.operator import rebase as steps
from partbox.db.operator.rebase import KnownInstance, Problem, Rebased
from partbox.db.schema.lock_retry import describe_blockers, list_blockers
from partbox.db.session import session
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.operations import arguments
from partbox.settings import Settings
from partbox.text.wording import counted, in_short, several

log = logging.getLogger("partbox.commands")

CHECK_INTERVAL = 0.05  # seconds between two looks at heartbeats
RETRY_PAUSE = 1.0  # seconds in which publishers go on, between two attempts to shut them out

REFUSALS: dict[Problem, str] = {
    "healthy": "schema {!r} is healthy: its cursors are those of this cluster, and workers start; nothing was changed "
    "(--force rebases it all the same)",
    "workers": "a worker has come to life on schema {!r} meanwhile, and nothing was changed: stop it and repeat this",
}

Progress = Callable[[str], None]
"""Called with what is waited for, when that changes."""


def examine(dsn: Callable[[], str], settings: Settings, *, force: bool = False) -> None:
    """PartboxError if `rebase` would refuse at once, so that no confirmation is asked for in vain."""
    with session(dsn, settings, "partbox rebase") as conn:
        _refuse_healthy(conn, settings.schema_name, force)


def rebase(
    dsn: Callable[[], str],
    settings: Settings,
    *,
    force: bool = False,
    timeout: arguments.Length,
    progress: Progress = lambda what: None,
) -> Rebased:
    """Make the copy in the schema of the settings one of this cluster; the result. All or nothing.

    Waits at most `timeout` for publishers to end their transactions. PartboxError if it need not be (unless `force`),
    if workers are alive, or if the wait was too short. Raises psycopg.Error.
    """
    patience, schema = arguments.length("timeout", timeout), settings.schema_name
    with session(dsn, settings, "partbox rebase") as conn:
        _refuse_healthy(conn, schema, force)
        dead = _await_silence(conn, schema, progress)
        done = _retry_rebase(conn, schema, dead, force, patience, progress)
    if isinstance(done, str):
        raise PartboxError(REFUSALS[done].format(schema))
    text, of = "schema %r is rebased: %s, %s parked", counted(len(done.subscriptions), "subscription")
    late = counted(sum(each.parked for each in done.subscriptions), "late record")
    log_event(log, "command", text, schema, of, late, command="rebase")
    return done


def _retry_rebase(
    conn: Conn, schema: str, dead: dict[UUID, datetime], force: bool, patience: float, progress: Progress
) -> Rebased | Problem:
    """Try until the locks are held; between two attempts those that queue behind us go on."""
    end = time.monotonic() + patience
    while True:
        try:
            return steps.rebase(conn, schema, dead, force=force)
        except LockNotAvailable:
            found = describe_blockers(list_blockers(conn, "rebase_holders", schema))
        if time.monotonic() >= end:
            raise PartboxError(
                f"after {patience:g} s {found} still in the way, and nothing was changed: end that, or give it longer "
                "by --timeout"
            )
        progress(f"{found} in the way")
        time.sleep(RETRY_PAUSE)


def _await_silence(conn: Conn, schema: str, progress: Progress) -> dict[UUID, datetime]:
    """The heartbeats of all instances, which are dead; PartboxError naming those that are not."""
    first, since = steps.list_instances(conn, schema), time.monotonic()
    heartbeats = {each.instance_id: each.heartbeat_at for each in first}
    found = first
    while doubtful := [each for each in found if each.left > 0 and time.monotonic() - since < each.lease]:
        progress(f"the heartbeats of {_describe_instances(doubtful)}: workers, or just rows of the copy?")
        time.sleep(CHECK_INTERVAL)
        found = steps.list_instances(conn, schema)
        alive = [each for each in found if heartbeats.get(each.instance_id) != each.heartbeat_at]
        if alive:
            raise PartboxError(
                f"workers are alive on schema {schema!r}: {_describe_instances(alive)}; stop them and repeat this"
            )
    return heartbeats


def _refuse_healthy(conn: Conn, schema: str, force: bool) -> None:
    if not force and steps.healthy(conn, schema):
        raise PartboxError(REFUSALS["healthy"].format(schema))


def _describe_instances(found: Sequence[KnownInstance]) -> str:
    return f"{counted(len(found), 'process')} ({several([f'{in_short(each.node, 60)} {each.pid}' for each in found])})"
