"""`partbox demo`: the main job, live."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TextIO

import typer

from partbox.cli.shell.options import Json
from partbox.cli.shell.output import console, print_json
from partbox.demo import DemoPlan, run_demo

Seconds = Annotated[float, typer.Option(min=0, metavar="N", help="Seconds until it ends; 0 = at Ctrl-C.")]
Processes = Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Worker processes.")]
Rate = Annotated[float, typer.Option(min=1, metavar="N", help="Events per second that the shop publishes.")]
NoChaos = Annotated[bool, typer.Option("--no-chaos", help="Kill no process, add none.")]
Dsn = Annotated[
    str | None,
    typer.Option(
        metavar="DSN",
        show_default=False,
        help="Use this database, in a schema of its own (else an embedded one; never that of PARTBOX_DSN).",
    ),
]


def demo(
    seconds: Seconds = 0,
    processes: Processes = 4,
    rate: Rate = 500,
    no_chaos: NoChaos = False,
    dsn: Dsn = None,
    json: Json = False,
) -> None:
    """Watch the main job: a shop publishes orders, worker processes deliver them while some are killed and some join.

    Everything it makes is removed at the end. Ctrl-C ends it, a second one at once. Exit code 1 if an event was lost,
    made up or out of order.

    Example: partbox demo --seconds 30
    """
    with _out(json) as out:
        summary = run_demo(DemoPlan(seconds, processes, rate, not no_chaos, dsn), out)
    if json:
        print_json(summary.plain())
    else:
        console().print("", summary.table(), "", summary.verdict(), sep="\n")
    raise typer.Exit(summary.code)


@contextmanager
def _out(json: bool) -> Iterator[TextIO]:
    """The stream of the view: standard error if JSON needs the standard output."""
    if not json:
        yield sys.stdout
        return
    with os.fdopen(os.dup(2), "w") as out:
        yield out
