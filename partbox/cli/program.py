"""The table of commands, and the run of a command, which imports the typed one only."""

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, NamedTuple, NoReturn

import psycopg
import typer

from partbox.cli.shell import usage
from partbox.cli.shell.arguments import check_encoding
from partbox.cli.shell.output import escape_unprintable, format_error_line
from partbox.cli.shell.usage import UsageError, is_help
from partbox.errors import PartboxError

START, RUN, LOOK, MEND, OPERATE, DEVELOP = "Start here", "Run", "Look", "Mend", "Operate", "Develop"

SETTINGS = "Every setting is an option too, such as --lease 10s or --pooler: partbox config lists them."

HEAD = """\
# The command line

This page is generated: `partbox --markdown > docs/cli.md`.

Exit codes: 0 = done, 1 = failed, and one line says why, 2 = wrong usage. Every command answers `--help`.
Every [setting](settings.md) is an option of each command that uses settings, such as `--lease 10s` or `--pooler`.
"""

ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


class CommandEntry(NamedTuple):
    """A command, or a group of commands, of the program `partbox`.

    `help_line` is its help, listed under the heading `panel`. With `takes_settings`, each setting is an option of the
    command. With an `extra`, the command comes from another distribution."""

    panel: str
    name: str
    help_line: str
    takes_settings: bool = True
    is_group: bool = False
    extra: str | None = None

    @property
    def module(self) -> Any:
        name = f"{self.name}_" if self.name == "import" else self.name
        return import_module(f"partbox.cli.commands.{name}")

    @property
    def function(self) -> Any:
        """The Python function that runs the command, or None if the package with the command is not installed."""
        # A group of commands has no such function.
        if self.extra is None:
            return getattr(self.module, self.module.__name__.rpartition(".")[2])
        # This reads a file of every installed distribution, so other commands avoid it.
        from importlib.metadata import entry_points

        found = entry_points(group="partbox.commands", name=self.name)
        return found[self.name].load() if found else None


ENTRIES = (
    CommandEntry(
        START, "demo", "Watch partbox work: orders are delivered while processes are killed.", takes_settings=False
    ),
    CommandEntry(START, "init", "Create the schema in a database: the first thing to do."),
    CommandEntry(RUN, "worker", "Deliver events to the handlers of MODULE:OUTBOX until stopped."),
    CommandEntry(RUN, "relay", "Send every event to a broker, in order per aggregate, until stopped."),
    CommandEntry(LOOK, "status", "Worker processes, partitions by owner, and the backlog."),
    CommandEntry(LOOK, "find", "Where an event is, and what became of it."),
    CommandEntry(LOOK, "top", "The status, live on the whole terminal."),
    CommandEntry(LOOK, "dashboard", "The status, live in a browser."),
    CommandEntry(LOOK, "config", "Every setting: its value, its origin, and its meaning."),
    CommandEntry(LOOK, "segments", "The segments of the log, and why each is kept."),
    CommandEntry(LOOK, "actions", "What operators did: who, when, on what, how many."),
    CommandEntry(MEND, "doctor", "Diagnose: causes of trouble, evidence, remedies."),
    CommandEntry(OPERATE, "migrate", "Bring the schema to this version, after an upgrade."),
    CommandEntry(OPERATE, "import", "Take over the table of another outbox, while it is written to."),
    CommandEntry(OPERATE, "purge", "Delete expired records; workers do so by themselves."),
    CommandEntry(OPERATE, "rebase", "Adopt a schema that was restored from a dump."),
    CommandEntry(DEVELOP, "handlers", "The routing table of the handlers; needs no database.", takes_settings=False),
    CommandEntry(DEVELOP, "metrics", "The metrics that a worker shows to Prometheus."),
    CommandEntry(
        DEVELOP,
        "bench",
        "Measure performance on your database, beside raw PostgreSQL.",
        takes_settings=False,
        extra="lab",
    ),
    CommandEntry(
        DEVELOP,
        "chaos",
        "Break a cluster on purpose, and check whether it lost events.",
        takes_settings=False,
        extra="lab",
    ),
    CommandEntry(MEND, "cancel", "Cancel a delayed event before its time comes."),
    CommandEntry(MEND, "dead", "Events that were given up: list, replay or discard them.", is_group=True),
    CommandEntry(MEND, "blocked", "Aggregates that wait for a failed event: retry or skip it.", is_group=True),
    CommandEntry(OPERATE, "limit", "How often handlers may be called: list, set, reset.", is_group=True),
    CommandEntry(RUN, "cdc", "Let Debezium send every event from the WAL, instead of a relay.", is_group=True),
    CommandEntry(OPERATE, "subscription", "Consumers of the log: create, pause, replay, drop.", is_group=True),
    CommandEntry(
        DEVELOP,
        "events",
        "The catalogue of events, and a check that no change breaks a reader.",
        takes_settings=False,
        is_group=True,
    ),
    CommandEntry(
        LOOK, "grafana", "Dashboards and alert rules: write them to a folder.", takes_settings=False, is_group=True
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from partbox.cli.shell.version import print_versions

        print_versions()


def _print_page(wanted: bool) -> None:
    if wanted:
        typer.echo(render_page(build_command()), nl=False)
        raise typer.Exit


def render_page(root: Any) -> str:
    """Return the documentation of all commands in Markdown, for `partbox --markdown`."""
    from typer.cli import get_docs_for_click

    whole = get_docs_for_click(obj=root, ctx=typer.Context(root, info_name="partbox"), name="partbox")
    text = whole[whole.index("\n## ") :]
    # The options and the line that all commands share are removed, and the headings of options that are empty then.
    for pattern, instead in (
        (r"^(\* `(?:-h, )?--help`: .*|Every setting is an option too.*)\n", ""),
        (r"^\*\*Options\*\*:\n++(?=\*\*|#|\Z)", ""),
        (r"^Example: (.*)$", r"Example: `\1`"),
        (r"\n{3,}", "\n\n"),
    ):
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return f"{HEAD}{text.rstrip()}\n"


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the versions and exit.")
]

Markdown = Annotated[
    bool,
    typer.Option(
        "--markdown", callback=_print_page, is_eager=True, help="Print the documentation of all commands and exit."
    ),
]


def warn_of_strays(context: typer.Context, version: Version = False, markdown: Markdown = False) -> None:
    """Warn of environment variables that begin with PARTBOX_ but are no settings."""
    # The check runs before any command. A worker logs the warning instead.
    if context.invoked_subcommand not in ("worker", "relay"):
        from partbox.observe.logs.setup import take_strays_text

        if text := take_strays_text():
            typer.echo(f"partbox: {text}", err=True)


def _add_command(app: typer.Typer, entry: CommandEntry) -> None:
    from partbox.cli.shell.flags import with_settings
    from partbox.cli.shell.single_dsn import SingleDsnCommand

    if entry.is_group:
        group = entry.module.app
        for each in group.registered_commands:
            each.cls = SingleDsnCommand
            each.short_help = " ".join(cleandoc(each.callback.__doc__ or "").partition("\n\n")[0].split())
            if entry.takes_settings and each.epilog is None:
                each.callback, each.epilog = with_settings(each.callback), SETTINGS
        app.add_typer(group, name=entry.name, rich_help_panel=entry.panel, short_help=entry.help_line)
        return
    made = partial(
        app.command, entry.name, cls=SingleDsnCommand, rich_help_panel=entry.panel, short_help=entry.help_line
    )
    if (run := entry.function) is None:
        made(context_settings=ANY_ARGUMENTS, add_help_option=False)(_refuse_without_extra(entry))
    elif entry.takes_settings:
        made(epilog=SETTINGS)(with_settings(run))
    else:
        made()(run)


def _refuse_without_extra(entry: CommandEntry) -> Callable[[], NoReturn]:
    # The stand-in accepts any arguments, and raises a usage error.

    def refuse() -> NoReturn:
        remedy = f"`pip install 'partbox[{entry.extra}]'` brings it"
        raise typer.BadParameter(f"{entry.name} comes with the extra {entry.extra}: {remedy}")

    return refuse


def build_application(entries: Sequence[CommandEntry] = ENTRIES) -> typer.Typer:
    app = typer.Typer(
        help="The transactional outbox for PostgreSQL.\n\nFirst steps: partbox init, then partbox worker shop:outbox.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(warn_of_strays)
    for entry in entries:
        _add_command(app, entry)
    return app


@cache
def build_command(entries: Sequence[CommandEntry] = ENTRIES) -> Any:
    # A later call returns the command line of the first.
    return typer.main.get_command(build_application(entries))


def load_command(typed: Sequence[str]) -> Any:
    """Find the command that the user typed, and return a function that runs it and exits."""
    # If the command is known, no other command is imported.
    word = next((word for word in typed if not word.startswith("-")), None)
    known = tuple(entry for entry in ENTRIES if entry.name == word and typed[0] == word)
    return partial(_run_command, build_command(known) if known else build_command(), typed)


def _run_command(root: Any, typed: Sequence[str]) -> NoReturn:
    try:
        check_encoding(typed)
        code = root(typed, prog_name="partbox", standalone_mode=False)
    except UsageError as error:
        said = (
            error.format_message()
            if is_help(error)
            else f"partbox: {usage.format_usage_error(error, typed, build_command())}"
        )
        _exit_with_text(said, error.exit_code)
    except typer.Abort:
        _exit_with_text("partbox: aborted", 1)
    except (PartboxError, psycopg.Error) as error:
        _exit_with_text(f"partbox: {escape_unprintable(format_error_line(error))}", 1)
    sys.exit(code or 0)


def _exit_with_text(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    sys.exit(code)
