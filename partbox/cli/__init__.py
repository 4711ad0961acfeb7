"""The command line. One command a file; errors become one line on the standard error output."""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from inspect import cleandoc
from typing import Annotated, Any, NoReturn

import psycopg
import typer

from partbox.cli.commands import (
    bench,
    blocked,
    cdc,
    chaos,
    config,
    dashboard,
    dead,
    demo,
    doctor,
    grafana,
    handlers,
    import_,
    init,
    metrics,
    migrate,
    purge,
    rebase,
    relay,
    segments,
    status,
    subscription,
    top,
    worker,
)
from partbox.cli.shell import usage
from partbox.cli.shell.arguments import blot, check
from partbox.cli.shell.flags import with_settings
from partbox.cli.shell.output import in_one_line, printable
from partbox.cli.shell.spelling import spelled
from partbox.cli.shell.usage import UsageError, is_help
from partbox.cli.shell.version import versions
from partbox.cli.views import commands_page
from partbox.errors import PartboxError
from partbox.observe.logs.strays import pass_over

START, RUN, LOOK, MEND, OPERATE, DEVELOP = "Start here", "Run", "Look", "Mend", "Operate", "Develop"

SETTINGS = "Every setting is an option too, such as --lease 10s or --pooler: partbox config lists them."

app = typer.Typer(
    help="The transactional outbox for PostgreSQL.\n\nFirst steps: partbox init, then partbox worker shop:outbox.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(versions())
        raise typer.Exit


def _print_page(wanted: bool) -> None:
    if wanted:
        typer.echo(commands_page.page(command()), nl=False)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions and exit.")
]

Markdown = Annotated[
    bool,
    typer.Option(
        "--markdown", callback=_print_page, is_eager=True, help="Print the documentation of all commands and exit."
    ),
]


@app.callback()
def before(context: typer.Context, version: Version = False, markdown: Markdown = False) -> None:
    """Before any command: warn of PARTBOX_ variables that are not settings. A worker logs them instead."""
    if context.invoked_subcommand not in ("worker", "relay") and (text := pass_over()):
        typer.echo(f"partbox: {text}", err=True)


def _add(
    panel: str, command: Callable[..., None], line: str, *, settings: bool = True, name: str | None = None
) -> None:
    made = app.command(name, rich_help_panel=panel, short_help=line, epilog=SETTINGS if settings else None)
    made(spelled(with_settings(command) if settings else command))


def _add_group(panel: str, group: typer.Typer, name: str, line: str, *, settings: bool = True) -> None:
    for each in group.registered_commands:
        assert each.callback is not None
        each.short_help = " ".join(cleandoc(each.callback.__doc__ or "").partition("\n\n")[0].split())
        if settings:
            each.callback, each.epilog = spelled(with_settings(each.callback)), SETTINGS
    app.add_typer(group, name=name, rich_help_panel=panel, short_help=line)


_add(START, demo.demo, "Watch it work: orders are delivered while processes are killed.", settings=False)
_add(START, init.init, "Create the schema in a database: the first thing to do.")
_add(RUN, worker.worker, "Deliver events to the handlers of MODULE:OUTBOX until stopped.")
_add(RUN, relay.relay, "Send every event to a broker, in order per aggregate, until stopped.")
_add(LOOK, status.status, "Worker processes, partitions by owner, and the backlog.")
_add(LOOK, top.top, "The same, live on the whole terminal.")
_add(LOOK, dashboard.dashboard, "The same, live in a browser.")
_add(LOOK, config.config, "Every setting: its value, its origin, and its meaning.")
_add(LOOK, segments.segments, "The pieces of the log, and what keeps each of them.")
_add(MEND, doctor.doctor, "Diagnose: causes of trouble, evidence, remedies.")
_add(OPERATE, migrate.migrate, "Bring the schema to this version, after an upgrade.")
_add(OPERATE, import_.import_, "Take over the table of another outbox, while it is written to.", name="import")
_add(OPERATE, purge.purge, "Delete what has expired; workers do it by themselves.")
_add(OPERATE, rebase.rebase, "Let a schema that came from a dump go on here.")
_add(DEVELOP, handlers.handlers, "The routing table of the handlers; needs no database.", settings=False)
_add(DEVELOP, metrics.metrics, "The metrics that a worker shows to Prometheus.")
_add(DEVELOP, bench.bench, "Measure the budgets on your database, beside raw PostgreSQL.", settings=False)
_add(DEVELOP, chaos.chaos, "Break a cluster on purpose, and check what it lost.", settings=False)
_add_group(MEND, dead.app, "dead", "Events that were given up: list, replay or discard them.")
_add_group(MEND, blocked.app, "blocked", "Aggregates that wait for a failed event: retry or skip it.")
_add_group(RUN, cdc.app, "cdc", "Let Debezium send every event instead, from the WAL.")
_add_group(OPERATE, subscription.app, "subscription", "Consumers of the log: create, pause, replay, drop.")
_add_group(LOOK, grafana.app, "grafana", "Dashboards and alert rules: write them to a folder.", settings=False)


@cache
def command() -> Any:
    """The whole command line, made once."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 = done, 1 = it failed (one line says why), 2 = wrong usage."""
    if arguments is None:
        blot()
    typed = sys.argv[1:] if arguments is None else arguments
    try:
        check(typed)
        code = command()(typed, prog_name="partbox", standalone_mode=False)
    except UsageError as error:
        said = error.format_message() if is_help(error) else f"partbox: {usage.in_one_line(error, typed, command())}"
        _end(said, error.exit_code)
    except typer.Abort:
        _end("partbox: aborted", 1)
    except (PartboxError, psycopg.Error) as error:
        _end(f"partbox: {printable(in_one_line(error))}", 1)
    sys.exit(code or 0)


def _end(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    sys.exit(code)
