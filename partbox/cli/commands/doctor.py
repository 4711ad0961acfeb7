"""`partbox doctor`: prints causes of trouble in an outbox, with evidence and remedies."""

from functools import partial
from typing import Annotated

import psycopg
import typer
from rich.console import Console
from rich.text import Text

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import OutboxOptions, flag, option, parse_duration, with_option_groups
from partbox.cli.shell.output import format_count, format_error_line, make_console, print_json
from partbox.doctor.case import Finding, Severity
from partbox.doctor.checks import CHECKS, DATABASE, SCHEMA
from partbox.doctor.doctor import Report, build_report, examine_outbox
from partbox.doctor.limits import LONG_TRANSACTION, limits_of
from partbox.duration import format_duration
from partbox.errors import PartboxError, SchemaError
from partbox.text.printing import shorten_line

Over = Annotated[str, option("TIME", "Age at which an open transaction, or a wait for a lock, counts as long.")]
Strict = Annotated[bool, flag("Exit with 1 after warnings too.", "--strict")]
Markdown = Annotated[bool, flag("Print the documentation of all checks instead.", "--markdown")]

LONG = format_duration(LONG_TRANSACTION)
LONGEST = 2_000  # characters of a line
_line = partial(shorten_line, most=LONGEST)
STYLES = {Severity.PROBLEM: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@with_option_groups
def doctor(
    *, transactions_over: Over = LONG, strict: Strict = False, outbox: OutboxOptions, markdown: Markdown = False
) -> None:
    """Diagnose the outbox: causes, evidence, remedies. Changes nothing.

    Exit code 0 if nobody needs to act, 1 if there is a problem. Use the same settings as the workers.

    Example: partbox doctor --dsn postgresql://localhost/shop
    """
    if markdown:
        typer.echo(_render_checks(), nl=False)
        return
    settings = outbox.load_settings()
    limits = limits_of(settings, parse_duration("--transactions-over", transactions_over))
    try:
        found = examine_outbox(lambda: build_dsn(settings), settings, limits)
    except (PartboxError, psycopg.Error) as error:
        if not outbox.json:
            raise
        cause = SCHEMA if isinstance(error, SchemaError) else DATABASE
        found = build_report(
            settings.schema_name, [Finding(Severity.PROBLEM, format_error_line(error), cause=cause.name)]
        )
    if outbox.json:
        print_json(found)
    else:
        out = make_console()
        for finding in found.findings:
            _print_finding(out, finding)
        out.print(Text(_format_summary(found)), soft_wrap=True)
    warned = any(each.severity is Severity.WARNING for each in found.findings)
    raise typer.Exit(int(not found.healthy or (strict and warned)))


def _print_finding(out: Console, finding: Finding) -> None:
    # Lines are not broken, so that the commands in the finding can be copied.
    head = Text.assemble((finding.severity, STYLES[finding.severity]), f"  {finding.cause}", style="bold")
    where = f"  subscription {finding.subscription}" if finding.subscription is not None else ""
    out.print(head + Text(_line(where)), soft_wrap=True)
    out.print(Text(f"  {_line(finding.summary)}"), soft_wrap=True)
    for each in finding.evidence:
        out.print(Text(f"    {_line(each)}"), soft_wrap=True)
    for each in finding.remedy:
        out.print(Text.assemble("  ", ("remedy", "bold"), f"  {_line(each)}"), soft_wrap=True)
    out.print()


def _format_summary(found: Report) -> str:
    if not found.findings:
        return f"schema {found.schema}: healthy; looked for {len(found.checks)} causes of trouble"
    counts = [(one, sum(each.severity is one for each in found.findings)) for one in Severity]
    said = ", ".join(format_count(number, one) for one, number in counts if number)
    return f"schema {found.schema}: {'healthy, with ' if found.healthy else ''}{said}"


def _render_checks() -> str:
    rows = [f"| `{each.name}` | {' or '.join(each.severities)} | {each.meaning} |\n" for each in CHECKS]
    return "".join(["| cause | severity | meaning |\n", "|---|---|---|\n", *rows])
