"""Read the log for an archive, and note the progress. See `sql/queries/archive.sql`. A record may be archived once no
record with a lower id can appear. A fence proves that when all transactions up to its own have ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from psycopg.errors import LockNotAvailable

from partbox.db import sql
from partbox.db.delivery.proof import without_row_security
from partbox.db.operator.actions import run_action
from partbox.db.sql import Conn, load_query
from partbox.errors import PartboxError

MAX_ID = 2**63 - 1
"""An id above every record's."""


class ArchiveFence(NamedTuple):
    """A record id up to which no new record can appear once the open transactions have ended."""

    settled: int  # no record up to this id can appear
    drawn: int  # no record up to this id can appear after all transactions up to `xid` have ended
    xid: int


class ArchiveState(NamedTuple):
    """The progress of the archive: the record ids that are archived, or safe to archive."""

    archived: int | None  # the id up to which everything is in the archive, None if no archive is kept
    fence: ArchiveFence | None
    oldest_open_xid: int  # the oldest transaction that is still open

    @property
    def settled(self) -> int:
        """The record id up to which archiving is safe, because no new record can appear below it."""
        # This is as far as the fence proves it. See `settle_ids`.
        if self.fence is None:
            return 0
        return self.fence.drawn if self.oldest_open_xid > self.fence.xid else self.fence.settled


class ArchiveRow(NamedTuple):
    """A record of the log as the archive stores it, with times as text.

    - `expired`: the record is older than the retention time"""

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


def read_archive_state(conn: Conn, schema: str) -> ArchiveState:
    """Read how far the archive has got, without changing anything."""
    archived, fence, oldest = _fetch_one(conn, "archive_state", schema)
    return ArchiveState(archived, ArchiveFence(*map(int, fence.split())) if fence else None, oldest)


def begin_archive(conn: Conn, schema: str) -> None:
    """Start an archive, so that purges delete only records that are archived."""
    # Nothing changes if an archive is kept already. Raise `PartboxError` if a trigger or rule drops the row.
    if read_archive_state(conn, schema).archived is None:
        run_action(conn, "archive_begin", schema, {})
        if read_archive_state(conn, schema).archived is None:
            raise PartboxError(
                "a trigger or rule keeps rows out of table meta, so no archive is kept: drop the trigger or rule"
            )


def end_archive(conn: Conn, schema: str) -> bool:
    """Stop the archive, so that purges may delete all old records. False if there was no archive."""
    # Purges may then remove records that were not archived.
    return bool(run_action(conn, "archive_end", schema, {}))


def settle_ids(conn: Conn, schema: str) -> int:
    """Return the record id up to which archiving is safe, because no new record can appear below it."""
    # Called repeatedly, the id rises. A new fence (proof) is made when the last one is proven. A transaction that is
    # open at that time and may write delays the proof until it ends.
    before = read_archive_state(conn, schema)
    drawn = _fetch_one(conn, "archive_drawn", schema)[0]
    if drawn == before.settled or (before.fence is not None and before.settled < before.fence.drawn):
        return before.settled
    conn.execute(load_query("archive_fence", schema), {"settled": before.settled, "drawn": drawn})
    return read_archive_state(conn, schema).settled


@contextmanager
def hold_archive_lock(conn: Conn, schema: str) -> Iterator[bool]:
    """Hold the archiver's lock for the block. Yield True if no other process archives meanwhile."""
    # The connection must not be used for anything else. The transaction that holds the lock has no transaction id, so
    # that no fence waits for it.
    with conn.transaction():
        try:
            with conn.transaction():
                conn.execute(load_query("archive_lock", schema), {})
            is_locked = True
        except LockNotAvailable:
            is_locked = False
        conn.execute(load_query("archive_patience", schema), {})
        yield is_locked


def find_oldest_age(conn: Conn, schema: str, after: int) -> float | None:
    """Return the age in seconds of the oldest record with an id above `after`, or None."""
    # None means that the log has no such record.
    return next((age for (age,) in _fetch_all(conn, "archive_oldest", schema, after=after)), None)


def count_due(conn: Conn, schema: str, after: int, upto: int, needed: int, retain: float) -> int:
    """Count the records with ids in (`after`, `upto`] that are due to be archived."""
    # Due records are older than `retain` seconds or have ids up to `needed`.
    return int(_fetch_one(conn, "archive_count", schema, after=after, upto=upto, needed=needed, retain=retain)[0])


def read_next_rows(
    conn: Conn, schema: str, after: int, upto: int, retain: float, most: int, size: int
) -> list[ArchiveRow]:
    """Return the next records to archive, in the order of ids."""
    # Their ids are in (`after`, `upto`]. At most `most` records or `size` bytes on disk are returned, but at least one
    # record.
    values = {"after": after, "upto": upto, "retain": retain, "most": most, "bytes": size}
    with without_row_security(conn):
        return sql.fetch_records(conn, ArchiveRow, "archive_rows", schema, **values)


def note_done(conn: Conn, schema: str, id: int) -> None:
    """Store that all records up to this id are safely in the archive."""
    conn.execute(load_query("archive_done", schema), {"id": id})


def note_failed(conn: Conn, schema: str, problem: str) -> None:
    """Store why archiving fails, so that the command `doctor` reports it."""
    conn.execute(load_query("archive_failed", schema), {"problem": problem.replace("\0", "")})


def _fetch_one(conn: Conn, name: str, schema: str, **values: Any) -> tuple[Any, ...]:
    return _fetch_all(conn, name, schema, **values)[0]


def _fetch_all(conn: Conn, name: str, schema: str, **values: Any) -> list[tuple[Any, ...]]:
    with without_row_security(conn):
        return sql.fetch_rows(conn, name, schema, **values)
