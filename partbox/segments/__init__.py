"""Maintain the segments of the log: make them ahead of need, empty them whole when expired, drop them when empty.

Each step calls one function in the database, in one transaction. Nothing waits for a segment that is in use, because
all other sessions would queue behind: a step waits at most 25 ms for its first lock, and for no other lock under it.
The step is repeated at the next maintenance."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from partbox.archive.archiver import ArchiveResult, archive_records, is_kept
from partbox.db import connect
from partbox.db.operator import segments as steps
from partbox.db.schema import migrate
from partbox.db.sql import Conn
from partbox.segments.attempts import Attempts
from partbox.segments.provisioning import describe_refusal, make_segments
from partbox.segments.retention import drop_empty_segment, empty_expired_segments, find_archive_limit
from partbox.settings import Settings
from partbox.text.wording import format_size

STATEMENT_TIMEOUT = 30.0  # seconds a statement may take, independent of a worker's lease


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """The names of log segments (table partitions) that one maintenance run created, emptied and dropped."""

    # `freed` is in bytes. `archived` has the records that were archived before. `problem` says why the server refused a
    # step, with the remedy. The report is true if any segment was changed.

    made: tuple[str, ...] = ()
    emptied: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    freed: int = 0
    archived: ArchiveResult = field(default_factory=ArchiveResult)
    problem: str | None = None

    def __bool__(self) -> bool:
        return bool(self.made or self.emptied or self.dropped)

    def __str__(self) -> str:
        lists = {
            "made": self.made,
            f"emptied, which freed {format_size(self.freed)}": self.emptied,
            "dropped": self.dropped,
        }
        return ", ".join(f"{' '.join(names)} {what}" for what, names in lists.items() if names) or "nothing to do"


def maintain_segments(
    dsn: Callable[[], str], settings: Settings, stopped: Callable[[], bool] = lambda: False
) -> SegmentReport:
    """Create, empty and drop segments (table partitions) of the log as needed, on a new connection. Return a report."""
    # A segment is a partition of the log by ids. `stopped` is polled between two steps. Raises `SchemaError` or
    # `psycopg.Error`. A schema with only an inbox has no segments.
    with connect.connect(dsn(), lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name="partbox segments") as conn:
        if migrate.is_inbox_only(conn, settings.schema_name):
            return SegmentReport()
        migrate.check_schema_version(conn, settings.schema_name)
        return maintain_on_connection(conn, dsn, settings, stopped, patient=True)


def maintain_on_connection(
    conn: Conn,
    dsn: Callable[[], str],
    settings: Settings,
    stopped: Callable[[], bool],
    *,
    patient: bool,
    progress: Callable[[ArchiveResult], None] = lambda sofar: None,
) -> SegmentReport:
    """Create, empty and drop segments of the log as needed, on a given connection. Return a report."""
    # The connection is to a whole outbox. One more connection is opened to search a large default segment, and one to
    # archive. Only archived records may be removed. Everything that has expired is archived, or, if `patient`, only a
    # larger amount.
    attempts, nothing = Attempts(), tuple[str, ...]()
    made = attempts.run_step(partial(make_segments, conn, dsn, settings), nothing)
    due = find_archive_limit(conn, settings)
    archived = archive_records(conn, dsn, settings, due, patient=patient, is_stopped=stopped, progress=progress)
    emptied, freed = nothing, 0
    # Without the archive that the settings want, records would be lost.
    if is_kept(conn, settings):
        emptied, freed = attempts.run_step(partial(empty_expired_segments, conn, settings, stopped), (nothing, 0))
    dropped = nothing if stopped() else attempts.run_step(partial(drop_empty_segment, conn, settings), nothing)
    problem = attempts.problem
    attempts.run_step(
        # For `doctor`. None means that the server refused nothing.
        partial(steps.note_problem, conn, settings.schema_name, problem),
        None,
    )
    if problem is not None:
        problem = describe_refusal(problem, steps.list_event_triggers(conn, settings.schema_name))
    return SegmentReport(made, emptied, dropped, freed, archived, problem)
