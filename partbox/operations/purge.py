"""Purging: deletion of records that every subscription has consumed, and of other expired rows, in small transactions.
If an archive is kept, only archived records are deleted, and the setting `archive` has them written first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psycopg.errors import QueryCanceled

from partbox.archive.archiver import ArchiveResult, count_waiting, is_kept
from partbox.db import connect
from partbox.db.operator import purge as steps
from partbox.db.operator.actions import LongAction
from partbox.db.schema import migrate
from partbox.db.sql import Conn
from partbox.segments import maintain_on_connection
from partbox.segments.retention import SegmentRetention, find_archive_limit, list_retentions
from partbox.settings import Settings
from partbox.text.wording import format_count, format_size

# Seconds that one step may take. The lease of a worker says nothing about that.
STATEMENT_TIMEOUT = 30.0
DRY_BATCH = 10_000
RETENTION_SETTINGS = ("retain_done", "retain_dead", "retain_keys", "retain_history", "retain_actions", "retain_inbox")


@dataclass(frozen=True, slots=True)
class Purged:
    """The result of a purge: the number of deleted rows of each kind, or of expired rows after a dry run.

    `dead` counts parked rows, whose records count as `records` once they expire. `segments` of the log were emptied
    whole and gave back `freed` bytes; their records are not counted. Before that, `archived` records were written to
    `files` files of the archive. `unarchived` is the reason why others could not be archived, `waiting` the reason why
    others must wait for a while, `untended` the reason why a segment could not be made, emptied or dropped. `complete`
    is False if the purge was stopped, or left the work to another purge."""

    records: int = 0
    dead: int = 0
    keys: int = 0
    history: int = 0
    inbox: int = 0
    segments: int = 0
    freed: int = 0
    archived: int = 0
    files: int = 0
    unarchived: str | None = None
    waiting: str | None = None
    untended: str | None = None
    complete: bool = True

    @property
    def total(self) -> int:
        return self.records + self.dead + self.keys + self.history + self.inbox + self.segments

    def __str__(self) -> str:
        counts = {"record": self.records, "dead row": self.dead, "idempotency key": self.keys}
        counts |= {"history row": self.history, "inbox row": self.inbox}
        parts = [format_count(count, name) for name, count in counts.items() if count]
        if self.segments:
            parts.insert(0, f"{format_count(self.segments, 'segment')} of {format_size(self.freed)}")
        return ", ".join(parts) or "nothing"


def purge(
    dsn: Callable[[], str],
    settings: Settings,
    *,
    dry_run: bool = False,
    by_hand: bool = False,
    patient: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[Purged], None] = lambda sofar: None,
) -> Purged:
    """Delete all expired rows of an outbox once, and return the counts. With `dry_run`, only count them.

    `is_stopped` is polled between two steps, and `progress` is called with the result so far after each step. If
    `by_hand` is set, the purge is recorded as an action of an operator. If `patient` is set, a few expired records are
    not worth an archive file and stay. Raise SchemaError or psycopg.Error."""
    sofar = Purged(complete=False)
    act = LongAction(settings.schema_name, "purge", {name: settings.shown(name) for name in RETENTION_SETTINGS})

    def report_progress(**changes: Any) -> None:
        nonlocal sofar
        before, sofar = sofar.total, replace(sofar, **changes)
        if is_noted:
            act.add_changes(conn, sofar.total - before)
        progress(sofar)

    with connect.connect(dsn(), lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name="partbox purge") as conn:
        is_noted = by_hand and not (dry_run or migrate.is_inbox_only(conn, settings.schema_name))
        for kind, limits in _list_kinds(conn, settings, dry_run):
            if kind == "records" and not _purge_segments(
                conn, dsn, settings, report_progress, dry_run, stopped=is_stopped, patient=patient
            ):
                continue
            for deleted in _purge_steps(conn, settings.schema_name, kind, limits, is_stopped):
                if deleted is None:
                    return sofar
                report_progress(**{kind: getattr(sofar, kind) + deleted})
    return replace(sofar, complete=True)


def _purge_steps(
    conn: Conn, schema: str, kind: steps.Kind, limits: dict[str, Any], is_stopped: Callable[[], bool]
) -> Iterator[int | None]:
    """Delete the expired rows of one kind in small steps, and yield the number of rows deleted in each."""
    # Each step is a transaction under a lock that a single purge holds at a time. A purge that does not get the lock
    # ends, because another one does the work.
    # None is yielded as the last value if stopped, or if another purge runs. After a timeout the step is repeated with
    # half the batch, and so with half of what it reads: on a slow disk no purge would pass that place otherwise.
    position: Sequence[int] | None = steps.START_POSITION
    while position is not None:
        try:
            step = None if is_stopped() else steps.run_step(conn, kind, schema, position, **limits)
        except QueryCanceled:
            if limits["batch"] == 1:
                raise
            limits = limits | {"batch": limits["batch"] // 2}
            continue
        yield None if step is None else step.deleted
        position = step and step.next_place


def _count_dry_run(conn: Conn, settings: Settings) -> dict[str, Any]:
    free = [each.segment for each in list_retentions(conn, settings) if each.is_emptied_next]
    archived = 0 if settings.archive is None else count_waiting(conn, settings, find_archive_limit(conn, settings))
    return {"segments": len(free), "freed": sum(each.size for each in free), "archived": archived}


def _purge_segments(
    conn: Conn,
    dsn: Callable[[], str],
    settings: Settings,
    report_progress: Callable[..., None],
    dry_run: bool,
    **how: Any,
) -> bool:
    """Archive expired records and empty expired log segments. Return True if single records may be deleted next."""
    # Whole segments come before single records, because they cost nothing per record.
    # A segment is emptied only if it has expired as a whole. The deletion of single records requires that all expired
    # records could be archived. `how` is passed on to `maintain_on_connection`.
    if dry_run:
        report_progress(**_count_dry_run(conn, settings))
        return True
    done = maintain_on_connection(
        conn, dsn, settings, **how, progress=lambda now: report_progress(**_to_archive_fields(now))
    )
    report_progress(
        segments=len(done.emptied), freed=done.freed, untended=done.problem, **_to_archive_fields(done.archived)
    )
    return is_kept(conn, settings)


def _to_archive_fields(done: ArchiveResult) -> dict[str, Any]:
    return {"archived": done.records, "files": done.files, "unarchived": done.problem, "waiting": done.waiting}


def list_segments(dsn: Callable[[], str], settings: Settings) -> list[SegmentRetention]:
    """Return every segment of the log (a table partition by record ids) with the reasons why it is kept."""
    # A schema with only an inbox has no segments.
    with connect.connect(dsn(), lease=STATEMENT_TIMEOUT, pooler=settings.pooler, name="partbox purge") as conn:
        if migrate.is_inbox_only(conn, settings.schema_name):
            return []
        migrate.check_schema_version(conn, settings.schema_name)
        return list_retentions(conn, settings)


def _list_kinds(conn: Conn, settings: Settings, dry_run: bool) -> Iterator[tuple[steps.Kind, dict[str, Any]]]:
    """Yield the kinds of rows that a purge deletes, in order, each with the arguments for its deletion."""
    # Dead rows come first, because a record is kept as long as it is parked in any subscription.
    # A schema with only an inbox has a single kind, inbox rows.
    limits = {"dry_run": dry_run, "batch": max(settings.purge_batch, DRY_BATCH) if dry_run else settings.purge_batch}
    if not migrate.is_inbox_only(conn, settings.schema_name):
        migrate.check_schema_version(conn, settings.schema_name)
        connect.check_server(conn, settings.schema_name)
        yield "dead", {"retain": settings.retain_dead, **limits}
        yield "records", {"retain": settings.retain_done, "retain_dead": settings.retain_dead, **limits}
        yield "keys", {"retain": settings.retain_keys, **limits}
        kept = {
            "attempt": 0.0,
            "cancellation": 0.0,
            "progress_note": settings.retain_history,
            "handled_types": settings.retain_history,
            "action": settings.retain_actions,
        }
        for table, retain in kept.items():
            yield "history", {"table": table, "retain": retain, **limits}
    yield "inbox", {"retain": settings.retain_inbox, **limits}
