"""`partbox import`: takes over the table of another outbox."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import psycopg
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from partbox.archive.source import source_of
from partbox.cli.shell.flags import database
from partbox.cli.shell.options import OutboxOptions, bundled
from partbox.cli.shell.output import in_one_line, printable
from partbox.cli.shell.stopping import stoppable
from partbox.cli.views.imported import print_done, print_dry, print_line, print_restored
from partbox.errors import PartboxError
from partbox.imports import Imported, ImportPlan, WantedEvents, import_rows, restore
from partbox.operations.arguments import time_with_zone
from partbox.settings import Settings

From = Annotated[
    str | None,
    typer.Option("--table", metavar="TABLE", show_default=False, help="The table or view, as in SQL: public.outbox."),
]
Map = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", show_default=False, help="The column of a field; repeatable."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", show_default=False, help="The same value for all rows; repeatable."),
]
Status = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", show_default=False, help="The column with the status (else all rows are pending)."),
]
Names = Annotated[
    list[str] | None, typer.Option(metavar="STATUS,…", show_default=False, help="Statuses of rows to be delivered.")
]
Failed = Annotated[
    list[str] | None,
    typer.Option(metavar="STATUS,…", show_default=False, help="Statuses of rows that become dead records."),
]
Done = Annotated[
    list[str] | None, typer.Option(metavar="STATUS,…", show_default=False, help="Statuses of rows that are skipped.")
]
Key = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN,…", show_default=False, help="Columns that identify a row (else the primary key)."),
]
Order = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN,…", show_default=False, help="Columns that order rows (else a numeric key)."),
]
Where = Annotated[str | None, typer.Option(metavar="SQL", show_default=False, help="Only rows for which this is true.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check every row, count, show the first ones, and import nothing.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="List rows that cannot be records, instead of stopping at the first.")
]
FromArchive = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="DIR|URL|FILE",
        show_default=False,
        help="Instead of a table: an archive that purges wrote, or one file of it.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", show_default=False, help="Of an archive: what was published from then on."),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", show_default=False, help="Of an archive: what was published before.")
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE,…", show_default=False, help="Of an archive: only these event types."),
]
AggregateType = Annotated[
    str | None, typer.Option(metavar="TYPE", show_default=False, help="Of an archive: only of this aggregate type.")
]
AggregateId = Annotated[
    str | None, typer.Option(metavar="ID", show_default=False, help="Of an archive: only of this aggregate.")
]
As = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="NAME",
        show_default=False,
        help="Of an archive: under each name an event comes once; another name brings it again.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with new rows until stopped.")]

OF_TABLE = ("map", "set", "status", "pending", "failed", "done", "key", "order", "where", "skip_bad", "follow")
OF_ARCHIVE = ("since", "until", "type", "as_", "aggregate_type", "aggregate_id")
"""Parameters that go with the one, and with the other."""

PAUSE = 1.0  # seconds between two passes at least
REST = 4  # and as many times as long as a pass takes
SAY_EVERY = 10.0  # seconds


@bundled
def import_(  # its parameters are its options
    *,
    from_: From = None,
    map: Map = None,
    set: Set = None,
    status: Status = None,
    pending: Names = None,
    failed: Failed = None,
    done: Done = None,
    order: Order = None,
    key: Key = None,
    where: Where = None,
    archive: FromArchive = None,
    since: Since = None,
    until: Until = None,
    type: Types = None,
    aggregate_type: AggregateType = None,
    aggregate_id: AggregateId = None,
    as_: As = None,
    dry_run: DryRun = False,
    skip_bad: SkipBad = False,
    follow: Follow = False,
    outbox: OutboxOptions,
) -> None:
    """Take over the table of another outbox: its pending rows in order, what failed as dead records, each once.

    The table is only read, and may be written to meanwhile; stop what delivers from it first. Stopped, or killed, the
    same command goes on. Run it again when the last writer has changed over: it says when nothing is left. With
    --archive instead, what a purge has archived is published again, each event once under the name that --as gives.

    Example: partbox import --table public.outbox --map event_type=kind --map payload=body --map aggregate_id=order_id
    --set aggregate_type=Order --status state --pending new --failed failed --done sent --dry-run
    """
    given = locals()
    _check_either(from_, archive, given)
    settings = outbox.settings()
    raise typer.Exit(_import(settings, given) if archive is None else _restore(settings, given))


def _time(option: str, text: str | None) -> datetime | None:
    return None if text is None else time_with_zone(option, text)


def _check_either(table: str | None, archive: str | None, given: Mapping[str, Any]) -> None:
    """A table or an archive, with its own options."""
    if table is None and archive is None:
        raise typer.BadParameter("import needs --table or --archive: `partbox import --help` has examples")
    if table is not None and archive is not None:
        raise PartboxError("--table and --archive: give one of them")
    if stray := next((option for option in (OF_TABLE if table is None else OF_ARCHIVE) if given[option]), None):
        option = "--" + stray.strip("_").replace("_", "-")
        raise PartboxError(f"{option} is for {'a table' if table is None else 'an archive'}: leave it out")


def _restore(settings: Settings, given: Mapping[str, Any]) -> int:
    """Import an archive and report on it; return the exit code."""
    wanted = WantedEvents(
        _time("--since", given["since"]),
        _time("--until", given["until"]),
        _names(given["type"]),
        given["aggregate_type"],
        given["aggregate_id"],
    )
    source, dry_run = source_of(given["archive"]), given["dry_run"]
    with stoppable() as stopped, _progressing("records") as progress:
        restored = restore(
            lambda: database(settings),
            settings,
            source,
            wanted,
            name=given["as_"] or "archive",
            dry_run=dry_run,
            stopped=stopped.is_set,
            progress=lambda sofar: progress(sofar.read, max(sofar.total, sofar.read)),
        )
    return print_restored(restored, given["outbox"].json, dry_run)


def _plan(given: Mapping[str, Any]) -> ImportPlan:
    columns, constants = _pairs("--map", given["map"]), _pairs("--set", given["set"])
    names = {name: _names(given[name]) for name in ("pending", "failed", "done", "key", "order")}
    return ImportPlan(given["from_"], columns, constants, status=given["status"], where=given["where"], **names)


def _import(settings: Settings, given: Mapping[str, Any]) -> int:
    """Import a table, or tell what would be; return the exit code."""
    plan, follow, json = _plan(given), given["follow"], given["outbox"].json
    if given["dry_run"]:
        if follow:
            raise PartboxError("--dry-run looks once: leave --follow out")
        print_dry(import_rows(lambda: database(settings), settings, plan, dry_run=True), json)
        return 0
    with stoppable() as stopped, _progressing("rows") as progress:
        once = partial(
            import_rows,
            lambda: database(settings),
            settings,
            plan,
            skip_bad=given["skip_bad"],
            stopped=stopped.is_set,
            progress=lambda sofar: progress(sofar.imported, sofar.total),
        )
        first = once()
        if follow:
            _follow(settings, first, once, stopped.wait, json)
    return 0 if follow else print_done(first, json)


def _follow(
    settings: Settings, result: Imported, once: Callable[[], Imported], wait: Callable[[float], bool], json: bool
) -> None:
    """Repeat until stopped, with a line for each pass that imported something. Errors of the database are printed."""
    pause = PAUSE
    print_line(result, json)
    while not wait(pause):
        began = time.monotonic()
        try:
            result = once()
            if result.imported:
                print_line(result, json)
        except psycopg.Error as error:
            typer.echo(f"partbox: import failed, and is tried again: {printable(in_one_line(error))}", err=True)
        pause = max(PAUSE, REST * (time.monotonic() - began))


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not (name and equals and value):
            raise PartboxError(f"{option} {each!r} must be FIELD={'COLUMN' if option == '--map' else 'VALUE'}")
        if name in pairs:
            raise PartboxError(f"{option} {name} is given twice: keep one of them")
        pairs[name] = value
    return pairs


def _names(given: Sequence[str] | None) -> tuple[str, ...]:
    """The names, given by repeated options or with commas."""
    return tuple(name.strip() for each in given or () for name in each.split(",") if name.strip())


@contextmanager
def _progressing(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal's standard error; elsewhere a line now and then."""
    error = Console(stderr=True)
    columns = (TextColumn("import"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    said_at = time.monotonic()

    with Progress(*columns, console=error, transient=True, disable=not error.is_terminal) as bar:
        task = bar.add_task("import", total=None)

        def advance(done: int, total: int) -> None:
            nonlocal said_at
            bar.update(task, completed=done, total=total)
            if not error.is_terminal and time.monotonic() - said_at >= SAY_EVERY:
                said_at = time.monotonic()
                typer.echo(f"partbox: imported {done:,} of {total:,} {what}", err=True)

        yield advance
