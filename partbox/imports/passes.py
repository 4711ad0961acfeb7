"""Import a table of another outbox in one pass, in batches, each in a transaction of its own.

A batch notes the keys of its rows in the transaction that publishes them, so each row is imported once, even if the
process is killed. A row that committed late, with a lower id, is taken by the next pass."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from partbox.db.connect import use_role_search_path
from partbox.db.operator import imports as steps
from partbox.db.operator.actions import LongAction
from partbox.db.operator.imports import OpenWriter, SourceQuery, SourceTable
from partbox.db.schema.migrate import list_subscription_names
from partbox.db.session import open_session
from partbox.db.sql import Conn
from partbox.db.type_conversion import OwnCursor
from partbox.errors import PartboxError, PublishError
from partbox.imports.plan import ImportPlan
from partbox.imports.rows import ImportRow, build_copy_columns, build_import_row
from partbox.observe.logs.log_event import log_event
from partbox.publish import steps as publishing
from partbox.publish.failures import ErrorExplainer
from partbox.publish.fields import COLUMNS
from partbox.publish.writing import copy_events
from partbox.settings import Settings
from partbox.text.wording import format_count

log = logging.getLogger("partbox.commands")

BATCH_ROWS = 5_000  # rows of a transaction
BATCH_BYTES = 8 << 20  # bytes of payloads of a transaction
SAMPLE_ROWS = 10  # rows of a dry run
MAX_LISTED = 100  # bad rows

T = TypeVar("T")


class Sized(Protocol):
    """The interface of an item with a `size` in bytes, by which batches of items are limited."""

    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of the source table that cannot be imported, with its key and the reason."""

    key: str
    problem: str


@dataclass(slots=True)
class ImportResult:
    """The result of a table import or its dry run, which also shows the progress during an import.

    - `total`: rows that the pass set out to import
    - `pending`, `dead`: rows that became pending or dead records
    - `done`: rows that were skipped
    - `before`: rows imported by earlier passes
    - `bad`: rows that cannot become records, the first of which are `listed`
    - `writers`: transactions that had written to the table before the pass began and had not ended. A later pass
      imports their rows.
    - `sample`: the first rows of a dry run
    - `complete`: False if the pass was stopped"""

    source: str
    total: int = 0
    pending: int = 0
    dead: int = 0
    done: int = 0
    before: int = 0
    bad: int = 0
    listed: list[BadRow] = field(default_factory=list)
    writers: list[OpenWriter] = field(default_factory=list)
    sample: list[ImportRow] = field(default_factory=list)
    complete: bool = False

    @property
    def imported(self) -> int:
        """The number of rows that this import turned into events."""
        # The events are pending or dead records.
        return self.pending + self.dead

    @property
    def has_imported_all(self) -> bool:
        """True if every row that was written before the import began is now imported or done."""
        return self.complete and not self.bad and not self.writers

    def add_batch(self, batch: list[ImportRow]) -> None:
        """Count the rows of an imported batch as pending or dead records."""
        dead = sum(each.failed_row is not None for each in batch)
        self.dead += dead
        self.pending += len(batch) - dead


def import_rows(
    dsn: Callable[[], str],
    settings: Settings,
    plan: ImportPlan,
    *,
    dry_run: bool = False,
    skip_bad: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    progress: Callable[[ImportResult], None] = lambda sofar: None,
) -> ImportResult:
    """Import the rows of another outbox's table as events, each row only once, and return the counts.

    A dry run checks everything and writes nothing. A row that cannot become a record raises `PartboxError`, unless
    `skip_bad`. Batches before it stay imported. `is_stopped` is polled between two batches, `progress` is called after
    each. Raise `SchemaError` or `psycopg.Error`."""
    # One connection reads the table in a read-only transaction, the other writes.
    # Rows that were imported before are left out.
    with (
        open_session(dsn, settings, "partbox import") as reader,
        open_session(dsn, settings, "partbox import") as writer,
    ):
        # The table's name, and an operator's SQL, mean the same as in the role's own sessions.
        use_role_search_path(reader)
        choice = plan.build_query(steps.find_table(reader, plan.table))
        sofar = ImportResult(choice.table.name)
        act = LongAction(settings.schema_name, "import", {"table": sofar.source})
        return _ImportPass(
            reader, writer, settings, plan, choice, dry_run, skip_bad, is_stopped, progress, sofar, act
        ).run()


@dataclass(slots=True)
class _ImportPass:
    reader: Conn
    writer: Conn
    settings: Settings
    plan: ImportPlan
    source_query: SourceQuery
    dry_run: bool
    skip_bad: bool
    is_stopped: Callable[[], bool]
    progress: Callable[[ImportResult], None]
    result: ImportResult
    action: LongAction

    def run(self) -> ImportResult:
        sofar = self.result
        # Listed before the snapshot is taken, so the snapshot sees the rows of every writer that had ended.
        sofar.writers = steps.list_writers(self.reader, self._table)
        with steps.read_transaction(self.reader, self._schema, self._table.name) as alone:
            if not (alone or self.dry_run):
                raise PartboxError(f"another import of {self._table.name} is running: wait for it, or stop it")
            self._count_rows(steps.count_by_status(self.reader, self._schema, self.source_query))
            try:
                sofar.complete = write_in_batches(self._read_rows(), self._write_batch, self.is_stopped)
            finally:
                if sofar.imported and not self.dry_run:
                    text, rows = "imported %s of %s, %s of them as dead records", format_count(sofar.imported, "row")
                    log_event(log, "command", text, rows, sofar.source, f"{sofar.dead:,}", command="import")
        return sofar

    def _count_rows(self, found: dict[str, tuple[int, int]]) -> None:
        """Count the rows of the source table by status. Raise `PartboxError` if some cannot be imported."""
        # The counts are stored in the result.
        self.plan.check_all_named(found)
        wanted = [each for status, each in found.items() if status not in self.plan.done]
        self.result.done = sum(number for status, (number, _) in found.items() if status in self.plan.done)
        self.result.before = sum(imported for _, imported in wanted)
        self.result.total = sum(number for number, _ in wanted) - self.result.before
        if any(status in found for status in self.plan.failed) and not list_subscription_names(
            self.reader, self._schema
        ):
            raise PartboxError(
                f"schema {self._schema!r} has no subscription in which a failed row could become a dead record: name "
                "the status by --done to skip such rows, or by --pending to deliver them; nothing was imported"
            )

    def _read_rows(self) -> Iterator[ImportRow]:
        # Rows that cannot become records are counted, or end the import.
        plan, limit = self.plan, self.settings.error_limit
        found = steps.read_source_rows(
            self.reader,
            self._schema,
            self.source_query,
            pending=plan.imported_statuses,
            failed=plan.failed,
            error=limit,
        )
        for row in found:
            try:
                yield build_import_row(row, self.settings.max_payload)
            except PublishError as error:
                self._reject_row(BadRow(row.key, str(error)))

    def _reject_row(self, bad: BadRow) -> None:
        self.result.bad += 1
        if len(self.result.listed) < MAX_LISTED:
            self.result.listed.append(bad)
        if not (self.skip_bad or self.dry_run):
            raise PartboxError(
                f"row {bad.key} of {self._table.name} cannot be imported: {bad.problem}; {self.result.imported:,} rows "
                "before its batch were imported, and the same command continues there; --skip-bad leaves such rows out"
            )

    def _write_batch(self, batch: list[ImportRow]) -> None:
        if self.dry_run:
            self.result.sample += batch[: SAMPLE_ROWS - len(self.result.sample)]
        else:
            with self.writer.transaction():
                self._note_keys([each.key for each in batch])
                newest = publish_batch(self.writer, self._schema, batch, build_copy_columns)
                failed = [each.failed_row for each in batch if each.failed_row is not None]
                if failed:
                    steps.bury_failed(self.writer, self._schema, failed, newest)
                self.action.add_changes(self.writer, len(batch))
        self.result.add_batch(batch)
        self.progress(self.result)

    def _note_keys(self, keys: list[str]) -> None:
        """Mark a batch of rows as imported. Raise `PartboxError` if two rows have the same key."""
        # No later import takes the rows again. The keys were not noted when the rows were read, and the lock excludes
        # other imports.
        fresh = steps.note_imported(self.writer, self._schema, self._table.name, keys)
        if len(fresh) < len(keys):
            twice = next(key for place, key in enumerate(keys) if key not in fresh or key in keys[:place])
            raise PartboxError(
                f"several rows of {self._table.name} have the key {twice}: with --key, name columns that tell them "
                "apart; no row of this batch was imported"
            )

    @property
    def _schema(self) -> str:
        return self.settings.schema_name

    @property
    def _table(self) -> SourceTable:
        return self.source_query.table


def publish_batch(
    conn: Conn, schema: str, batch: list[T], copy_columns: Callable[[list[T], int], Iterable[tuple[Any, ...]]]
) -> int:
    """Publish a batch of events by COPY. Return the highest record id from before the batch."""
    # `copy_columns` makes the columns of the rows; it gets the database's clock.
    clock, newest = steps.read_clock_and_newest(conn, schema)
    with ErrorExplainer(schema), OwnCursor(conn) as cursor:
        copying = copy_events(schema, COLUMNS, copy_columns(batch, clock), len(batch))
        publishing.run_steps(copying, lambda step: step.run(cursor))
    return newest


def write_in_batches(entries: Iterator[S], write: Callable[[list[S]], None], is_stopped: Callable[[], bool]) -> bool:
    """Call `write` with batches of the entries, in order. Return False if `is_stopped` ended the work early."""
    # A batch has a size that suits a transaction. The end comes early if `is_stopped` returns True.
    batch: list[S] = []
    size = 0
    for each in entries:
        batch.append(each)
        size += each.size
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            if is_stopped():
                return False
            write(batch)
            batch, size = [], 0
    if batch and not is_stopped():
        write(batch)
    return not is_stopped()
