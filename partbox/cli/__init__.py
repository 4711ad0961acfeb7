"""The command line. One command a file; errors become one line on the standard error output."""

import sys
from collections.abc import Sequence
from typing import NoReturn

import psycopg
import typer

from partbox.cli import (
    blocked,
    chaos,
    config,
    dashboard,
    dead,
    demo,
    doctor,
    handlers,
    init,
    metrics,
    migrate,
    purge,
    rebase,
    status,
    subscription,
    top,
    worker,
)
from partbox.cli.arguments import blot, check
from partbox.cli.output import in_one_line, printable
from partbox.errors import PartboxError

app = typer.Typer(
    help="The transactional outbox for PostgreSQL.\n\nFirst steps: partbox init, then partbox worker shop:outbox.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (init.init, migrate.migrate, worker.worker, status.status, demo.demo, handlers.handlers, config.config):
    app.command()(command)
app.command()(purge.purge)
app.command()(rebase.rebase)
app.command()(doctor.doctor)
app.command()(metrics.metrics)
app.command()(top.top)
app.command()(dashboard.dashboard)
app.command()(chaos.chaos)
app.add_typer(dead.app, name="dead")
app.add_typer(blocked.app, name="blocked")
app.add_typer(subscription.app, name="subscription")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command and exits: 0 = done, 1 = it could not be done (one line says why), 2 = wrong usage."""
    if arguments is None:
        blot()
    try:
        check(sys.argv[1:] if arguments is None else arguments)
        app(arguments, prog_name="partbox")
    except (PartboxError, psycopg.Error) as error:
        typer.echo(f"partbox: {printable(in_one_line(error))}", err=True)
        sys.exit(1)
    raise AssertionError("a command always exits")
