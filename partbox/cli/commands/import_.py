"""`partbox import`: imports the table of another outbox, or an archive."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

import psycopg
import typer
from rich.console import Console

from partbox.archive.files import open_source
from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import ActionOptions, OutboxOptions, flag, option, with_option_groups
from partbox.cli.shell.output import escape_unprintable, format_error_line
from partbox.cli.shell.progress import show_progress_bar
from partbox.cli.shell.stopping import stoppable
from partbox.cli.views.imported import print_done, print_dry_run, print_line, print_restored
from partbox.errors import PartboxError
from partbox.imports import ImportFilter, ImportPlan, ImportResult, import_rows, restore_events
from partbox.operations.arguments import parse_time


@dataclass(frozen=True, slots=True)
class TableOptions:
    table: Annotated[str | None, option("TABLE", "The table or view, as in SQL: public.outbox.")] = None
    map: Annotated[list[str] | None, option("FIELD=COLUMN", "The column of a field; repeatable.")] = None
    set: Annotated[list[str] | None, option("FIELD=VALUE", "The same value for all rows; repeatable.")] = None
    status: Annotated[str | None, option("COLUMN", "The column with the status (else all rows are pending).")] = None
    pending: Annotated[list[str] | None, option("STATUS,…", "Statuses of rows to be delivered.")] = None
    failed: Annotated[list[str] | None, option("STATUS,…", "Statuses of rows that become dead records.")] = None
    done: Annotated[list[str] | None, option("STATUS,…", "Statuses of rows that are skipped.")] = None
    order: Annotated[list[str] | None, option("COLUMN,…", "Columns that order rows (else a numeric key).")] = None
    key: Annotated[list[str] | None, option("COLUMN,…", "Columns that identify a row (else the primary key).")] = None
    where: Annotated[str | None, option("SQL", "Only rows for which this is true.")] = None

    def build_plan(self, table: str) -> ImportPlan:
        columns, constants = _parse_pairs("--map", self.map), _parse_pairs("--set", self.set)
        names = {name: _split_names(getattr(self, name)) for name in ("pending", "failed", "done", "key", "order")}
        return ImportPlan(table, columns, constants, status=self.status, where=self.where, **names)


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    archive: Annotated[
        str | None, option("DIR|URL|FILE", "Instead of a table: an archive that purges wrote, or one file of it.")
    ] = None
    since: Annotated[str | None, option("TIME", "With --archive: only events published from then on.")] = None
    until: Annotated[str | None, option("TIME", "With --archive: only events published before then.")] = None
    type: Annotated[list[str] | None, option("TYPE,…", "With --archive: only events of these types.")] = None
    aggregate_type: Annotated[str | None, option("TYPE", "With --archive: only events of this aggregate type.")] = None
    aggregate_id: Annotated[str | None, option("ID", "With --archive: only events of this aggregate.")] = None
    as_: Annotated[
        str | None,
        option(
            "NAME",
            "With --archive: an event is published once under each name; another name publishes it again.",
            "--as",
        ),
    ] = None

    def build_filter(self) -> ImportFilter:
        since = None if self.since is None else parse_time("--since", self.since)
        until = None if self.until is None else parse_time("--until", self.until)
        return ImportFilter(since, until, _split_names(self.type), self.aggregate_type, self.aggregate_id)


DryRun = Annotated[bool, flag("Check and count all rows, show the first, and import nothing.", "--dry-run")]
SkipBad = Annotated[bool, flag("List rows that cannot be records, instead of stopping at the first.", "--skip-bad")]
Follow = Annotated[bool, flag("Go on with new rows until stopped.", "--follow")]

PAUSE = 1.0  # seconds between two passes, at least
PAUSE_FACTOR = 4  # times the duration of a pass, at least
REPORT_INTERVAL = 10.0  # seconds


@with_option_groups
def import_(
    *,
    of_table: TableOptions,
    of_archive: ArchiveOptions,
    dry_run: DryRun = False,
    skip_bad: SkipBad = False,
    follow: Follow = False,
    outbox: ActionOptions,
) -> None:
    """Take over the table of another outbox: pending rows in order, and failed rows as dead records, each once.

    The table is only read, and may be written to meanwhile. Stop the process that delivers from it first. After an
    interruption or a kill, the same command continues. Run the command again when the last writer has changed over: it
    reports when nothing is left. With --archive instead, archived records are published again, each event once under
    the name that --as gives.

    Example: partbox import --table public.outbox --map event_type=kind --map payload=body --map aggregate_id=order_id
    --set aggregate_type=Order --status state --pending new --failed failed --done sent --dry-run
    """
    match of_table.table, of_archive.archive:
        case None, None:
            raise typer.BadParameter("import needs --table or --archive: `partbox import --help` has examples")
        case str(table), None:
            _refuse_options(asdict(of_archive), "an archive")
            settings = outbox.load_settings()
            run_pass = partial(import_rows, lambda: build_dsn(settings), settings, of_table.build_plan(table))
            raise typer.Exit(_import_table(run_pass, dry_run, skip_bad, follow, outbox.json))
        case None, str(archive):
            _refuse_options(asdict(of_table) | {"skip_bad": skip_bad, "follow": follow}, "a table")
            raise typer.Exit(_import_archive(outbox, archive, of_archive, dry_run))
    raise PartboxError("--table and --archive are both given: keep one")


def _refuse_options(options: Mapping[str, object], kind: str) -> None:
    # `kind` is the kind of import for which the options are.
    for name, value in options.items():
        if value:
            raise PartboxError(f"--{name.strip('_').replace('_', '-')} is for {kind}: leave it out")


def _import_archive(outbox: OutboxOptions, archive: str, options: ArchiveOptions, dry_run: bool) -> int:
    settings, wanted, source = outbox.load_settings(), options.build_filter(), open_source(archive)
    with stoppable() as stopped, _show_progress("records") as progress:
        restored = restore_events(
            lambda: build_dsn(settings),
            settings,
            source,
            wanted,
            name=options.as_ or "archive",
            dry_run=dry_run,
            is_stopped=stopped.is_set,
            progress=lambda sofar: progress(sofar.read, max(sofar.total, sofar.read)),
        )
    return print_restored(restored, outbox.json, dry_run)


def _import_table(
    run_pass: Callable[..., ImportResult], dry_run: bool, skip_bad: bool, follow: bool, json: bool
) -> int:
    # The result is the exit code.
    if dry_run and follow:
        raise PartboxError("--dry-run looks once: leave --follow out")
    if dry_run:
        print_dry_run(run_pass(dry_run=True), json)
        return 0
    with stoppable() as stopped, _show_progress("rows") as progress:
        run_pass = partial(
            run_pass,
            skip_bad=skip_bad,
            is_stopped=stopped.is_set,
            progress=lambda sofar: progress(sofar.imported, sofar.total),
        )
        first = run_pass()
        if follow:
            _repeat_import(first, run_pass, stopped.wait, json)
    return 0 if follow else print_done(first, json)


def _repeat_import(
    result: ImportResult, run_pass: Callable[[], ImportResult], wait: Callable[[float], bool], json: bool
) -> None:
    """Repeat the import until stopped. Print each pass that imported something, and each error of the database."""
    pause = PAUSE
    print_line(result, json)
    while not wait(pause):
        began = time.monotonic()
        try:
            result = run_pass()
            if result.imported:
                print_line(result, json)
        except psycopg.Error as error:
            typer.echo(
                f"partbox: import failed, and is tried again: {escape_unprintable(format_error_line(error))}", err=True
            )
        pause = max(PAUSE, PAUSE_FACTOR * (time.monotonic() - began))


def _parse_pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise PartboxError(f"{option} {each!r} must be FIELD={'COLUMN' if option == '--map' else 'VALUE'}")
        if name in pairs:
            raise PartboxError(f"{option} {name} is given twice: keep one of them")
        pairs[name] = value
    return pairs


def _split_names(given: Sequence[str] | None) -> tuple[str, ...]:
    # The option may be repeated, or given once with commas.
    return tuple(name.strip() for each in given or () for name in each.split(",") if name.strip())


@contextmanager
def _show_progress(what: str) -> Iterator[Callable[[int, int], None]]:
    # If standard error is no terminal, a line is printed every REPORT_INTERVAL instead of the bar.
    is_terminal = Console(stderr=True).is_terminal
    reported_at = time.monotonic()

    with show_progress_bar("import") as show:

        def advance(done: int, total: int) -> None:
            nonlocal reported_at
            show(done, total)
            if not is_terminal and time.monotonic() - reported_at >= REPORT_INTERVAL:
                reported_at = time.monotonic()
                typer.echo(f"partbox: imported {done:,} of {total:,} {what}", err=True)

        yield advance
