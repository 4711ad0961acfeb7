"""Confirmation, progress and interruption of commands that change many things."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from partbox.errors import PartboxError

INTERRUPTED = 130


def confirm(what: str, yes: bool) -> None:
    """Return only if the user confirms `what` ("replay 5 dead records"); PartboxError without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise PartboxError(f"to {what} needs a yes, and there is no terminal to ask on: repeat it with --yes")
    if not typer.confirm(f"{what[:1].upper()}{what[1:]}?", err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)


def report_interrupt(said: str) -> int:
    """Say that a signal ended the command, and how it has left things; return the exit code."""
    typer.echo(f"partbox: interrupted: {said}", err=True)
    return INTERRUPTED


@contextmanager
def progress_bar(verb: str, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's standard error; yields a callback (done, total)."""
    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    error = Console(stderr=True)
    with Progress(*columns, console=error, transient=True, disable=not error.is_terminal) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda done, of: progress.update(task, completed=done, total=of)
