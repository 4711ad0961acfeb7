"""`partbox bench`: measures the budgets of this version on a database."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from partbox import settings
from partbox.cli.shell.options import Json
from partbox.cli.shell.output import build_table, make_console, print_json
from partbox.errors import SettingsError

if TYPE_CHECKING:
    from partbox_lab.bench import BenchReport, LineSet

Dsn = Annotated[
    str | None,
    typer.Option(
        metavar="DSN",
        show_default=False,
        help="Use this database, in a schema of its own (else PARTBOX_DSN, else an embedded one).",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: a minute or two, and rough values.")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="NAME", show_default=False, help="Measure this line alone; repeatable."),
]
Growth = Annotated[bool, typer.Option("--growth", help="The lines of growth: years of records, hundreds of processes.")]
Listed = Annotated[bool, typer.Option("--list", help="Print the lines and their budgets; measure nothing.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", show_default=False, help="Draw the values too: .svg, .png, .pdf (needs the extra plot)."
    ),
]


def bench(
    dsn: Dsn = None,
    quick: Quick = False,
    only: Only = None,
    growth: Growth = False,
    listed: Listed = False,
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Measure this version's budgets on a database, next to raw PostgreSQL in the same run.

    The database and the machine should be idle otherwise. The schema is partbox_bench, and is removed at the end.
    A full run takes long and needs 10 GB of disk for millions of records. --quick takes a minute or two and is rough.
    With --growth it measures the costs of a log and a cluster that have grown.
    Exit code 0: no budget was missed. 1: a budget was missed, or a line failed. 130: Ctrl-C ended the run. Extra: lab.

    Example: partbox bench --quick
    """
    # Imported here, since no other command needs these modules.
    from partbox_lab.bench import FULL, GROWTH, LINES, QUICK, BenchPlan, perform
    from partbox_lab.bench.plot import draw, drawable

    lines = GROWTH if growth else LINES
    wanted = _wanted(lines, only or [])
    if listed:
        _list(lines, wanted, json)
        return
    if plot is not None:
        drawable(plot)
    plan = BenchPlan(settings.load(dsn=dsn).dsn, wanted, QUICK if quick else FULL, quick, lines)
    with _stderr() as progress:
        report = perform(plan, progress)
    _show(report, json)
    if plot is not None:
        draw(report, plot)
    raise typer.Exit(report.code)


def _wanted(lines: "LineSet", only: list[str]) -> frozenset[str]:
    """Return the names of the lines to measure. An unknown name is a usage error."""
    from partbox_lab.bench import chosen_lines

    try:
        return chosen_lines(lines, only)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def _show(report: "BenchReport", json: bool) -> None:
    if json:
        print_json(report.plain())
        return
    out = make_console()
    out.print(*report.header(), "", report.table(out.width), "", report.verdict(), sep="\n")


def _list(lines: "LineSet", wanted: frozenset[str], json: bool) -> None:
    budgets = [each for each in lines.budgets if each.name in wanted]
    if json:
        print_json(budgets)
        return
    rows = ((each.name, each.shown(), each.what) for each in budgets)
    make_console().print(build_table(("line", "budget", "measured"), rows, whole=("line", "budget")))


@contextmanager
def _stderr() -> Iterator[TextIO]:
    """Yield a copy of the user's standard error, while the standard error of worker processes goes elsewhere."""
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w") as out:
        yield out
