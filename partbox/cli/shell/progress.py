"""Confirmation, progress bar and interruption of commands that change many rows."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from partbox.errors import PartboxError

INTERRUPTED = 130


def confirm_action(what: str, yes: bool) -> None:
    """Ask the user to confirm an action, unless `yes` is set. Exit with 1 if the user refuses."""
    # `what` describes the action, such as "replay 5 dead records". PartboxError is raised if standard input is no
    # terminal.
    if yes:
        return
    if not sys.stdin.isatty():
        raise PartboxError(
            f"to {what} needs confirmation, and there is no terminal to ask on: repeat the command with --yes"
        )
    if not typer.confirm(f"{what[:1].upper()}{what[1:]}?", err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)


def report_interrupt(said: str) -> int:
    # The message says in which state the command left the outbox.
    typer.echo(f"partbox: interrupted: {said}", err=True)
    return INTERRUPTED


@contextmanager
def show_progress_bar(verb: str, total: int | None = None) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error, and yield a function that updates the bar."""
    # The arguments of the function are `done` and `total`.
    # The bar lasts as long as the context. Nothing is shown if standard error is no terminal.
    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    error = Console(stderr=True)
    with Progress(*columns, console=error, transient=True, disable=not error.is_terminal) as progress:
        task = progress.add_task(verb, total=total)
        yield lambda done, of: progress.update(task, completed=done, total=of)
