"""Archive expired records before a purge may remove them: file by file, each noted once it is there for good."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from partbox.archive.files import ArchiveFileWriter
from partbox.archive.location import Location, location_of
from partbox.db import connect
from partbox.db.operator import archive as steps
from partbox.db.operator.archive import ArchiveRow
from partbox.db.schema.lock_retry import describe_blockers, list_blockers
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.settings import Settings
from partbox.text.wording import format_count, format_size

STATEMENT_TIMEOUT: Final = 30.0  # seconds that a statement may take
READ_RECORDS, READ_BYTES = 5_000, 1 << 20
"""Records of one read, and their bytes on disk. In memory they may take far more."""
FILE_RECORDS, FILE_BYTES = 1_000_000, 256 << 20
"""The most records of a file, and the most bytes of its lines."""
PATIENT_FACTOR: Final = 1.25
"""A patient archiver waits until a record is older than this multiple of the retention, and then fills one file."""


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """The result of archiving: the numbers of archived records and of files, and their size in bytes."""

    # If due records were not archived, `problem` is the error that prevented it, or `waiting` is an obstacle that will
    # pass.

    records: int = 0
    files: int = 0
    size: int = 0
    problem: str | None = None
    waiting: str | None = None

    def __str__(self) -> str:
        return (
            f"{format_count(self.records, 'record')} in {format_count(self.files, 'file')} of {format_size(self.size)}"
        )


def archive_records(
    conn: Conn,
    dsn: Callable[[], str],
    settings: Settings,
    needed: int,
    *,
    patient: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[ArchiveResult], None] = lambda sofar: None,
) -> ArchiveResult:
    """Write all expired records to archive files, so that they may be deleted from the log.

    `conn` is connected to a whole outbox. One more connection is opened for the lock. With `patient`, nothing happens
    for a few expired records. `is_stopped` is polled between reads, and `progress` is called after each file. Without
    the setting `archive`, nothing happens. A failure is the `problem` of the result and is noted for `doctor`. Files
    written before it stay archived. Raise `psycopg.Error`."""
    # All records up to the id `needed` are written as well.
    if settings.archive is None:
        return ArchiveResult()
    schema = settings.schema_name
    if (problem := _ensure_kept(conn, settings, settings.archive)) is not None:
        return ArchiveResult(problem=problem)
    if not _is_due(conn, settings, needed, PATIENT_FACTOR if patient else 1.0):
        return ArchiveResult()
    upto = steps.settle_ids(conn, schema)
    work = _ArchiveRun(conn, settings, needed, upto, is_stopped, progress)
    with (
        connect.connect(dsn(), lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name="partbox archive") as other,
        steps.hold_archive_lock(other, schema) as archive_lock,
    ):
        try:
            if not archive_lock:
                return ArchiveResult(
                    waiting=f"{describe_blockers(list_blockers(conn, 'archive_others', schema))} archiving just now"
                )
            done = work.run(location_of(settings.archive))
        except PartboxError as error:
            steps.note_failed(conn, schema, str(error))
            return replace(work.result, problem=str(error))
    return done if is_stopped() else replace(done, waiting=_find_blocker(conn, settings, needed, upto))


def _ensure_kept(conn: Conn, settings: Settings, place: str) -> str | None:
    """Mark the archive as started in the database if it is not yet. Return an error text if its location is not
    writable, else None."""
    # A location that cannot be written, such as a typing error, must not keep all purges from deleting.
    # The archive is started once its place has proved writable.
    if not is_kept(conn, settings):
        try:
            location_of(place).check_writable()
        except PartboxError as error:
            return str(error)
        steps.begin_archive(conn, settings.schema_name)
    return None


def _find_blocker(conn: Conn, settings: Settings, needed: int, upto: int) -> str | None:
    """Describe the transactions that keep due records from being archived now, or return None if there are none."""
    # Due records with ids above `upto` cannot be archived yet. Up to `upto` no record can appear any more.
    fence = steps.read_archive_state(conn, settings.schema_name).fence
    if fence is None or fence.drawn <= upto or not _is_due(conn, settings, needed, 1.0):
        return None
    found = list_blockers(conn, "archive_holders", settings.schema_name)
    if not found:
        return "a transaction that was in the way has just ended: try again"
    return (
        f"{describe_blockers(found)} in the way: records that {'it' if len(found) == 1 else 'they'} may "
        f"still write come first"
    )


def is_kept(conn: Conn, settings: Settings) -> bool:
    """Return True if records may be deleted from the log because they are archived or no archive is configured."""
    # With an archive in the settings, it must have been started.
    return settings.archive is None or steps.read_archive_state(conn, settings.schema_name).archived is not None


def count_waiting(conn: Conn, settings: Settings, needed: int) -> int:
    """Count the records that are due for archiving now, without writing any of them."""
    archive_state = steps.read_archive_state(conn, settings.schema_name)
    after = -1 if archive_state.archived is None else archive_state.archived
    return steps.count_due(conn, settings.schema_name, after, steps.MAX_ID, needed, settings.retain_done)


def _is_due(conn: Conn, settings: Settings, needed: int, factor: float) -> bool:
    archived = steps.read_archive_state(conn, settings.schema_name).archived or 0
    if archived < needed:
        return True
    age = steps.find_oldest_age(conn, settings.schema_name, archived)
    return age is not None and age > factor * settings.retain_done


@dataclass(slots=True)
class _ArchiveRun:
    """One run of the archiver, which writes the records that are due for archiving to compressed files."""

    # Records are due if they have expired or if their ids are not above `needed`. Records above the id `upto` are left
    # out, because others may still appear among them.

    conn: Conn
    settings: Settings
    needed: int
    upto: int
    is_stopped: Callable[[], bool]
    progress: Callable[[ArchiveResult], None]
    result: ArchiveResult = field(default_factory=ArchiveResult)
    is_over: bool = False

    def run(self, place: Location) -> ArchiveResult:
        after = steps.read_archive_state(self.conn, self.settings.schema_name).archived
        while after is not None and not self.is_over:
            after = self._write_file(place, after)
        return self.result

    def _write_file(self, place: Location, after: int) -> int:
        """Write one archive file with the records above the id `after`, and return its last id."""
        # The file is noted in the database.
        with place.open_new_file() as file:
            part = ArchiveFileWriter(place, file)
            while part.records < FILE_RECORDS and part.size < FILE_BYTES and not self.is_over:
                rows = self._read_due(after)
                for row in rows:
                    part.write(row)
                after = rows[-1].id if rows else after
            # An unfinished file is thrown away.
            if self.is_stopped() or not part.records:
                self.is_over = True
                return after
            kept = part.finish_file()
        steps.note_done(self.conn, self.settings.schema_name, after)
        self.result = ArchiveResult(self.result.records + part.records, self.result.files + 1, self.result.size + kept)
        self.progress(self.result)
        return after

    def _read_due(self, after: int) -> list[ArchiveRow]:
        """Read the next records above the id `after` that are due for archiving."""
        # The run is over if a read ends with records that are too young, because ids and times rise together, nearly.
        # Young records before an old one are archived with it.
        if self.is_stopped():
            self.is_over = True
            return []
        schema, retain = self.settings.schema_name, self.settings.retain_done
        rows = steps.read_next_rows(self.conn, schema, after, self.upto, retain, READ_RECORDS, READ_BYTES)
        due = [place for place, row in enumerate(rows, 1) if row.expired or row.id <= self.needed]
        taken = due[-1] if due else 0
        self.is_over = taken < len(rows) or not rows
        return rows[:taken]
