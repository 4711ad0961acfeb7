"""The server's queue of notifications, which is one for all its databases, and who keeps it from being emptied."""

import re
from contextlib import suppress
from typing import Any, NamedTuple

from psycopg import Connection
from psycopg.errors import Diagnostic, ProgramLimitExceeded

from partbox.db.sql import query

HALF = 0.5
"""The part in use from which on the server names the holder, and nobody rings any more: see `sql/queries/bell.sql`."""


class NotificationQueue(NamedTuple):
    """The part of it that is in use; the pid of the session that holds it, None unless the server has named it."""

    usage: float
    holder: int | None = None


def look(conn: Connection[Any], schema: str) -> NotificationQueue:
    """Look through an autocommit connection."""
    row = conn.execute(query("queue_usage", schema), {}).fetchone()
    usage = row[0] if row else 0.0
    return NotificationQueue(usage, _holder(conn, schema) if usage >= HALF else None)


def _holder(conn: Connection[Any], schema: str) -> int | None:
    """The pid in the warning that a notification brings: the only number there, for its language is the server's."""
    pids: list[int] = []

    def note(said: Diagnostic) -> None:
        pids.extend(map(int, re.findall(r"\d+", said.message_detail or "")))

    conn.add_notice_handler(note)
    try:
        with suppress(ProgramLimitExceeded):
            conn.execute(query("queue_holder", schema), {})
    finally:
        conn.remove_notice_handler(note)
    return pids[0] if pids else None
