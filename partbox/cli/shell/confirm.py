"""Confirmation and progress of commands that change many things."""

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


@contextmanager
def progressing(verb: str, done: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal's standard error; yields a callback (done, total). Ctrl-C reports how many were done."""
    reached = 0
    columns = (TextColumn(verb), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    error = Console(stderr=True)

    try:
        with Progress(*columns, console=error, transient=True, disable=not error.is_terminal) as bar:
            task = bar.add_task(verb, total=total)

            def advance(now: int, of: int) -> None:
                nonlocal reached, total
                reached, total = now, of
                bar.update(task, completed=now, total=of)

            yield advance
    except KeyboardInterrupt:
        rest = "the same command continues with the others"
        typer.echo(f"partbox: interrupted: {done} {reached:,} of {total:,} dead records; {rest}", err=True)
        raise typer.Exit(INTERRUPTED) from None
