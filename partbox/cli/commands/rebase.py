"""`partbox rebase`: adapts a restored schema to its new database cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from partbox.cli.shell.flags import build_dsn
from partbox.cli.shell.options import ActionOptions, Yes, flag, option, with_option_groups
from partbox.cli.shell.output import build_table, escape_unprintable, format_count, make_console, print_json
from partbox.cli.shell.progress import confirm_action, report_interrupt
from partbox.db.operator.rebase import Rebased
from partbox.operations import arguments
from partbox.operations.rebase import Progress, check_rebase_needed
from partbox.operations.rebase import rebase as run
from partbox.text.dsn import parse_dsn

Force = Annotated[bool, flag("Rebase even if the schema was not copied from another cluster.", "--force")]
Timeout = Annotated[str, option("TIME", "Longest wait for open transactions of publishers, such as 90s or 5m.")]

COLUMNS = ("subscription", "cursors moved", "late records parked")


@with_option_groups
def rebase(*, yes: Yes = False, force: Force = False, timeout: Timeout = "60s", outbox: ActionOptions) -> None:
    """Adopt an outbox that came from a dump, or by logical replication, so that workers start on it.

    Workers then deliver, in order, the events that were undelivered when the copy was made. Stop them first. Publishers
    may work, and wait while the rebase lasts. Stop the original's workers too, or both deliver the rest. Ctrl-C changes
    nothing.

    Example: pg_restore -d shop shop.dump && partbox rebase --dsn postgresql://localhost/shop
    """
    settings = outbox.load_settings()
    arguments.parse_length("timeout", timeout)
    name = settings.schema_name
    check_rebase_needed(lambda: build_dsn(settings), settings, force=force)
    # Show the name of the database only, because the rest of the DSN may hold a password.
    given = parse_dsn(build_dsn(settings))
    where = f"database {escape_unprintable(str(given.get('dbname') or given.get('user') or 'postgres'))!r}"
    confirm_action(f"adopt schema {escape_unprintable(name)!r} of {where}, and deliver its undelivered events", yes)
    with _show_waiting() as progress:
        done = run(lambda: build_dsn(settings), settings, force=force, timeout=timeout, progress=progress)
    if outbox.json:
        print_json(asdict(done))
    else:
        _print_result(name, done)


def _print_result(schema: str, done: Rebased) -> None:
    typer.echo(f"schema {escape_unprintable(schema)!r} is rebased: workers may start")
    if done.subscriptions:
        rows = ((each.subscription, f"{each.cursors:,}", f"{each.parked:,}") for each in done.subscriptions)
        make_console().print(build_table(COLUMNS, rows, COLUMNS[1:], COLUMNS[:1]))
    if done.instances:
        typer.echo(f"{format_count(done.instances, 'instance')} of the copy forgotten")
    if done.next_after > done.last_id:
        text = "the id sequence was raised from {:,} to {:,}: events published here before that may count as consumed"
        typer.echo(text.format(done.last_id, done.next_after), err=True)


@contextmanager
def _show_waiting() -> Iterator[Progress]:
    # On a terminal, the reason for waiting is one changing line on standard error. Otherwise each reason gets a line.
    error = Console(stderr=True)
    said = ""

    def print_reason(what: str) -> None:
        nonlocal said
        if what != said:
            typer.echo(f"partbox: waiting: {escape_unprintable(what)}", err=True)
        said = what

    try:
        if not error.is_terminal:
            yield print_reason
        else:
            with error.status("rebasing") as status:
                yield lambda what: status.update(escape_unprintable(f"waiting: {what}"))
    except KeyboardInterrupt:
        raise typer.Exit(report_interrupt("nothing was changed")) from None
