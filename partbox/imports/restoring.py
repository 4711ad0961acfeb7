"""Restore: publish the events of an archive again, each once, in the order of their ids.

Events keep their event ids, by which an inbox recognizes them. A batch notes its events in the transaction that
publishes them, so the same command continues after a kill. Events that are still in the log are left there."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

from psycopg import DataError

from partbox.archive.files import ArchiveEntry, ArchiveSource
from partbox.db.operator import imports as steps
from partbox.db.operator.actions import LongAction
from partbox.db.operator.archive import ArchiveRow
from partbox.db.session import open_session
from partbox.db.sql import Conn
from partbox.errors import PartboxError
from partbox.imports.passes import SAMPLE_ROWS, publish_batch, write_in_batches
from partbox.observe.logs.log_event import log_event
from partbox.protocol.hashing import partition_of
from partbox.publish.fields import UNTIMED_COLUMNS
from partbox.settings import Settings
from partbox.text.printing import shorten_line
from partbox.text.wording import format_count

log = logging.getLogger("partbox.commands")

# The partition is left out, because it is computed anew.
_stored_fields: Final = attrgetter(*UNTIMED_COLUMNS[1:])


@dataclass(frozen=True, slots=True)
class ImportFilter:
    """A filter that selects archived events by type, aggregate and publishing time."""

    # The time is from `since` on and before `until`. An event must match everything given.

    since: datetime | None = None
    until: datetime | None = None
    types: tuple[str, ...] = ()
    aggregate_type: str | None = None
    aggregate_id: str | None = None

    def matches(self, row: ArchiveRow) -> bool:
        """Return True if an archived event matches the filter. Raise `ValueError` if its time is out of range."""
        # The error is raised if the publishing time is needed and Python cannot represent it.
        return (
            (not self.types or row.event_type in self.types)
            and self.aggregate_type in (None, row.aggregate_type)
            and self.aggregate_id in (None, row.aggregate_id)
            and (self.since is None or parse_time(row.created_at) >= self.since)
            and (self.until is None or parse_time(row.created_at) < self.until)
        )


@dataclass(slots=True)
class RestoreResult:
    """The result of restoring events from an archive or its dry run, which also shows the progress during a restore.

    - `total`: the most records that the `files` contain
    - `read`: records that were read: the sum of `imported` (published), `unwanted` (left out by the filter), `before`
      (imported before) and `kept` (still in the log)
    - `sample`: the first records of a dry run
    - `complete`: False if the restore was stopped"""

    source: str
    files: int = 0
    total: int = 0
    read: int = 0
    imported: int = 0
    unwanted: int = 0
    before: int = 0
    kept: int = 0
    sample: list[ArchiveRow] = field(default_factory=list)
    complete: bool = False


def restore_events(  # noqa: PLR0913  as in `import_rows`, and the name
    dsn: Callable[[], str],
    settings: Settings,
    source: ArchiveSource,
    wanted: ImportFilter,
    *,
    name: str = "archive",
    dry_run: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[RestoreResult], None] = lambda sofar: None,
) -> RestoreResult:
    """Publish the archived events that match the filter `wanted` again, and return the counts."""
    # Each event is published only once.
    # The record's id and time are new. Everything else is as it was published.
    # Events that were imported under this name before are left out. A dry run writes nothing. `is_stopped` is polled
    # between two records, `progress` is called after each batch. Raises `PartboxError` for a file or a line that is not
    # an archive's, `SchemaError`, or `psycopg.Error`.
    with (
        open_session(dsn, settings, "partbox import") as reader,
        open_session(dsn, settings, "partbox import") as writer,
    ):
        source_name = f"archive {name}"
        with steps.read_transaction(reader, settings.schema_name, source_name) as alone:
            if not (alone or dry_run):
                raise PartboxError(
                    f"another import of an archive under the name {name!r} is running: wait for it, or stop it"
                )
            sofar = RestoreResult(source.display_name, len(source.names), source.total)
            act = LongAction(settings.schema_name, "import", {"archive": source.display_name, "as": name})
            return _Restore(
                writer, settings, source, wanted, source_name, dry_run, is_stopped, progress, sofar, act
            ).run()


@dataclass(slots=True)
class _Restore:
    conn: Conn
    settings: Settings
    source: ArchiveSource
    wanted: ImportFilter
    source_name: str
    dry_run: bool
    is_stopped: Callable[[], bool]
    progress: Callable[[RestoreResult], None]
    result: RestoreResult
    action: LongAction

    def run(self) -> RestoreResult:
        sofar = self.result
        try:
            sofar.complete = write_in_batches(self._select_entries(), self._write_batch, self.is_stopped)
        finally:
            if sofar.imported and not self.dry_run:
                text = "imported %s from %s"
                log_event(log, "command", text, format_count(sofar.imported, "record"), sofar.source, command="import")
        return sofar

    def _select_entries(self) -> Iterator[ArchiveEntry]:
        for entry in self.source.read_entries():
            if self.is_stopped():
                return
            self.result.read += 1
            try:
                fits = self.wanted.matches(entry.row)
            except ValueError:
                raise PartboxError(f"{entry.place}: its created_at {entry.row.created_at!r} is no time") from None
            if fits:
                yield entry
            else:
                self.result.unwanted += 1

    def _write_batch(self, batch: Sequence[ArchiveEntry]) -> None:
        try:
            with self.conn.transaction():
                self._publish_rows([each.row for each in batch])
        except DataError as error:
            reason = shorten_line(" ".join(str(error).split()), 300)
            raise PartboxError(
                f"{batch[0].place} or a line after it is not a record that PostgreSQL accepts: {reason}; "
                f"{self.result.imported:,} records before it were imported"
            ) from None
        self.progress(self.result)

    def _publish_rows(self, rows: Sequence[ArchiveRow]) -> None:
        """Publish the events of a batch that were not imported before, in their order."""
        # A record that is in two files is published once.
        schema = self.settings.schema_name
        partitions = [row.partition for row in rows]
        ids, event_ids = [row.id for row in rows], [row.event_id for row in rows]
        kept = steps.find_present(self.conn, schema, partitions, ids, event_ids)
        by_key = {f"{row.event_id} {row.id}": row for row in rows if (row.id, row.event_id) not in kept}
        fresh = self._take_fresh(list(by_key))
        new = [row for key, row in by_key.items() if key in fresh]
        if new and not self.dry_run:
            publish_batch(self.conn, schema, new, lambda rows, clock: (_copy_columns(row, clock) for row in rows))
            self.action.add_changes(self.conn, len(new))
        sofar = self.result
        sofar.imported += len(new)
        sofar.before += len(by_key) - len(new)
        sofar.kept += len(kept)
        if self.dry_run:
            sofar.sample += new[: SAMPLE_ROWS - len(sofar.sample)]

    def _take_fresh(self, keys: list[str]) -> set[str]:
        """Mark events as imported, and return the keys of the events that were not marked before."""
        # The marks hold if this transaction commits. A dry run notes nothing.
        if self.dry_run:
            return {*keys} - steps.find_imported(self.conn, self.settings.schema_name, self.source_name, keys)
        return steps.note_imported(self.conn, self.settings.schema_name, self.source_name, keys)


def parse_time(text: str) -> datetime:
    """Parse a time of an archived event. Raise `ValueError` if it has no time zone or is out of Python's range."""
    found = datetime.fromisoformat(text)
    if found.utcoffset() is None:
        raise ValueError("it has no zone")
    return found


def _copy_columns(row: ArchiveRow, clock: int) -> tuple[Any, ...]:
    partition = partition_of(row.event_id if row.aggregate_id is None else row.aggregate_id)
    return (partition, *_stored_fields(row), _future_time(row.available_at, clock), row.occurred_at)


def _future_time(available_at: str | None, clock: int) -> str | None:
    """Return the time from which an event may be delivered, or None if it is not in the future."""
    # None is also returned if the time never comes, as for dead records.
    try:
        due = None if available_at is None else parse_time(available_at)
    except ValueError:
        return None
    return available_at if due is not None and due.timestamp() * 1_000_000 > clock else None
