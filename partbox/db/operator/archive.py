"""Reading the log for an archive, and notes of its progress; see `sql/queries/archive.sql`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from psycopg.errors import LockNotAvailable

from partbox.db import sql
from partbox.db.delivery.proof import without_row_security
from partbox.db.operator.actions import act
from partbox.db.sql import Conn, query
from partbox.errors import PartboxError

MAX_ID = 2**63 - 1
"""An id above every record's."""


class ArchiveFence(NamedTuple):
    """Once all transactions up to `xid` have ended, no record up to `drawn` can appear; up to `settled` none can."""

    settled: int
    drawn: int
    xid: int


class ArchiveState(NamedTuple):
    """`archived`: everything up to this id is in the archive; None: none is kept. `oldest` transaction still open."""

    archived: int | None
    fence: ArchiveFence | None
    oldest: int

    @property
    def settled(self) -> int:
        """The id up to which no record can appear any more, as far as it is known; see `settle`."""
        if self.fence is None:
            return 0
        return self.fence.drawn if self.oldest > self.fence.xid else self.fence.settled


class ArchiveRow(NamedTuple):
    """A record as it is archived, times as texts; `expired`: it is older than the retention."""

    id: int
    partition: int
    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    payload: str | None
    payload_bytes: bytes | None
    content_type: str | None
    headers: str | None
    available_at: str | None
    occurred_at: str
    created_at: str
    expired: bool


def archive_state(conn: Conn, schema: str) -> ArchiveState:
    """The progress of the archive, and its limit as of now; writes nothing."""
    archived, fence, oldest = _one(conn, "archive_state", schema)
    return ArchiveState(archived, ArchiveFence(*map(int, fence.split())) if fence else None, oldest)


def begin(conn: Conn, schema: str) -> None:
    """From now on no purge removes what is in no archive; nothing changes if one is kept already."""
    if archive_state(conn, schema).archived is None:
        act(conn, "archive_begin", schema, {})
        if archive_state(conn, schema).archived is None:
            raise PartboxError("a trigger or rule keeps rows out of table meta: no archive is kept; drop it")


def end(conn: Conn, schema: str) -> bool:
    """Purges ask for no archive any more; False if none was kept."""
    return bool(act(conn, "archive_end", schema, {}))


def settle(conn: Conn, schema: str) -> int:
    """The id up to which no record can appear any more; asked again and again it rises.

    A transaction that was open when it was asked, and may write, holds it up until it ends.
    """
    before = archive_state(conn, schema)
    drawn = _one(conn, "archive_drawn", schema)[0]
    if drawn == before.settled or (before.fence is not None and before.settled < before.fence.drawn):
        return before.settled
    conn.execute(query("archive_fence", schema), {"settled": before.settled, "drawn": drawn})
    return archive_state(conn, schema).settled


@contextmanager
def archive_lock(conn: Conn, schema: str) -> Iterator[bool]:
    """Yields True if nobody else archives while it lasts; the connection is for nothing else meanwhile."""
    with conn.transaction():
        try:
            with conn.transaction():
                conn.execute(query("archive_lock", schema), {})
            is_locked = True
        except LockNotAvailable:
            is_locked = False
        conn.execute(query("archive_patience", schema), {})
        yield is_locked


def oldest(conn: Conn, schema: str, after: int) -> float | None:
    """The age (s) of the oldest record beyond `after`; None without one."""
    return next((age for (age,) in _rows(conn, "archive_oldest", schema, after=after)), None)


def count_due(conn: Conn, schema: str, after: int, upto: int, needed: int, retain: float) -> int:
    """The records beyond `after`, up to `upto`, that are older than `retain` (s) or up to `needed`."""
    return int(_one(conn, "archive_count", schema, after=after, upto=upto, needed=needed, retain=retain)[0])


def rows(conn: Conn, schema: str, after: int, upto: int, retain: float, most: int, size: int) -> list[ArchiveRow]:
    """The next records beyond `after`, up to `upto`, by id: `most` at most, of `size` bytes on disk; at least one."""
    values = {"after": after, "upto": upto, "retain": retain, "most": most, "bytes": size}
    with without_row_security(conn):
        return sql.records(conn, ArchiveRow, "archive_rows", schema, **values)


def done(conn: Conn, schema: str, id: int) -> None:
    """Note that everything up to this id is in the archive, for good."""
    conn.execute(query("archive_done", schema), {"id": id})


def note_failed(conn: Conn, schema: str, problem: str) -> None:
    """Note that archiving fails, for doctor."""
    conn.execute(query("archive_failed", schema), {"problem": problem.replace("\0", "")})


def _one(conn: Conn, name: str, schema: str, **values: Any) -> tuple[Any, ...]:
    return _rows(conn, name, schema, **values)[0]


def _rows(conn: Conn, name: str, schema: str, **values: Any) -> list[tuple[Any, ...]]:
    with without_row_security(conn):
        return sql.rows(conn, name, schema, **values)
