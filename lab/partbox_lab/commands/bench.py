import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from partbox import settings
from partbox.cli.shell.options import Json
from partbox.cli.shell.output import console, print_json, table
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
    from partbox_lab.bench import chosen_lines

    try:
        return chosen_lines(lines, only)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None


def _show(report: "BenchReport", json: bool) -> None:
    if json:
        print_json(report.plain())
        return
    out = console()
    out.print(*report.header(), "", report.table(out.width), "", report.verdict(), sep="\n")


def _list(lines: "LineSet", wanted: frozenset[str], json: bool) -> None:
    budgets = [each for each in lines.budgets if each.name in wanted]
    if json:
        print_json(budgets)
        return
    rows = ((each.name, each.shown(), each.what) for each in budgets)
    console().print(table(("line", "budget", "measured"), rows, whole=("line", "budget")))


@contextmanager
def _stderr() -> Iterator[TextIO]:
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "w") as out:
        yield out
