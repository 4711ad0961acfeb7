"""`partbox purge`: deletes what every subscription has consumed and retention has expired."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import orjson
import psycopg
import typer
from rich.console import Console

from partbox.cli.shell.confirm import INTERRUPTED
from partbox.cli.shell.database import database
from partbox.cli.shell.flags import load
from partbox.cli.shell.options import Dsn, Json, Schema
from partbox.cli.shell.output import in_one_line, print_json, printable
from partbox.cli.shell.stopping import stoppable
from partbox.errors import PartboxError
from partbox.purge import Purged, holders
from partbox.purge import purge as run
from partbox.rules.duration import seconds, written
from partbox.rules.segments import past
from partbox.segments.wording import told
from partbox.settings import Settings
from partbox.supervisor.flag import Flag

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Count what would be deleted, say what holds back the rest, delete nothing.")
]
Every = Annotated[
    str | None,
    typer.Option(metavar="TIME", show_default=False, help="Repeat at this interval, such as 30m, until stopped."),
]

ELSEWHERE = "another purge, or a change of subscriptions, is running; what it leaves is purged next time"


def purge(
    dry_run: DryRun = False, every: Every = None, dsn: Dsn = None, schema: Schema = None, json: Json = False
) -> None:
    """Delete what has expired: handled and dead records, idempotency keys, inbox rows.

    Workers do it by themselves every purge_interval; where none run, for a writer-only outbox or an inbox, --every
    does. Nothing goes that a subscription still needs, a paused one neither. Ctrl-C ends it after the current batch.

    Example: partbox purge --dry-run
    """
    settings = load(flags={"dsn": dsn, "schema": schema})
    interval = None if every is None else _interval(every, dry_run)
    with stoppable() as stopped:
        if interval is None:
            raise typer.Exit(_once(settings, dry_run, json, stopped))
        _again(settings, interval, json, stopped)


def _interval(every: str, dry_run: bool) -> float:
    if dry_run:
        raise PartboxError("--dry-run counts once: leave --every out")
    try:
        interval = seconds(every)
    except ValueError as error:
        raise PartboxError(f"--every {every!r} is not a time: {error}") from None
    if interval <= 0:
        raise PartboxError(f"--every {every!r} must be more than 0")
    return interval


def _once(settings: Settings, dry_run: bool, json: bool, stopped: Flag) -> int:
    """Purge once and print the result; return the exit code."""
    verb = "would purge" if dry_run else "purged"
    with _progressing(verb) as progress:
        purged = run(lambda: database(settings), settings, dry_run=dry_run, stopped=stopped.is_set, progress=progress)
    held = _held(settings) if dry_run else {}
    if json:
        print_json(asdict(purged) | {"dry_run": dry_run} | ({"held": held} if dry_run else {}))
    else:
        typer.echo(f"{verb} {purged}" if purged.total else _nothing(purged))
        for name, reasons in held.items():
            typer.echo(f"held back in {name}: {printable('; '.join(reasons))}")
    if purged.complete:
        return 0
    if stopped.is_set():
        typer.echo("partbox: interrupted: the same command continues with the rest", err=True)
        return INTERRUPTED
    typer.echo(f"partbox: not complete: {ELSEWHERE}", err=True)
    return 0


def _held(settings: Settings) -> dict[str, list[str]]:
    """The reasons to keep each segment whose oldest record has expired."""
    found = holders(lambda: database(settings), settings)
    return {each.segment.name: told(each) for each in found if each.holds and past(each.segment, settings.retain_done)}


def _nothing(purged: Purged) -> str:
    return "nothing has expired" if purged.complete else "nothing was purged"


def _again(settings: Settings, interval: float, json: bool, stopped: Flag) -> None:
    """Purge at once and after each interval until stopped. An error of the first ends it; later ones are printed."""
    _line(run(lambda: database(settings), settings, stopped=stopped.is_set), json)
    while not stopped.wait(interval):
        try:
            _line(run(lambda: database(settings), settings, stopped=stopped.is_set), json)
        except (PartboxError, psycopg.Error) as error:
            consequence = f"what has expired stays until the next one in {written(interval)}"
            typer.echo(f"partbox: purge failed, {consequence}: {printable(in_one_line(error))}", err=True)


def _line(purged: Purged, json: bool) -> None:
    """Print the deleted rows in one line."""
    if json:
        typer.echo(orjson.dumps(asdict(purged) | {"dry_run": False}).decode())
    elif purged.total:
        typer.echo(f"purged {purged}")


@contextmanager
def _progressing(verb: str) -> Iterator[Callable[[Purged], None]]:
    """A progress line on a terminal's standard error."""
    error = Console(stderr=True)
    if not error.is_terminal:
        yield lambda sofar: None
        return
    with error.status(f"{verb} …") as status:
        yield lambda sofar: status.update(f"{verb} {sofar} so far")
