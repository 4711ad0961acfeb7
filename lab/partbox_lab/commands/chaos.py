"""`partbox chaos`: tries to make a cluster lose, reorder, or duplicate events."""

import random
import sys
from collections.abc import Callable
from typing import Annotated, Final, TypeVar

import typer

from partbox import settings
from partbox.cli.shell.options import Json
from partbox.cli.shell.output import make_console, print_json
from partbox.errors import SettingsError

R = TypeVar("R")

SCHEMA: Final = "partbox_chaos"

Dsn = Annotated[
    str | None,
    typer.Option(
        metavar="DSN", show_default=False, help="Use this database, in a schema of its own (never PARTBOX_DSN)."
    ),
]
Embedded = Annotated[bool, typer.Option("--embedded", help="Use a PostgreSQL of its own, which is attacked as well.")]
Seconds = Annotated[float, typer.Option(min=1, metavar="N", help="Seconds to publish and disturb.")]
Seed = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", show_default=False, help="Seed of the schedule, to replay one (else a new one)."),
]
Nodes = Annotated[int, typer.Option(min=1, max=16, metavar="N", help="Nodes at the start.")]
Processes = Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Worker processes of each node.")]
Faults = Annotated[str, typer.Option(metavar="LIST", help="all, none, or names such as kill-node,hang.")]
Schema = Annotated[str, typer.Option(metavar="NAME", help="Its own schema, made and dropped.")]
Keep = Annotated[bool, typer.Option("--keep", help="Leave the schema (of --dsn) and the history behind.")]


def chaos(
    dsn: Dsn = None,
    embedded: Embedded = False,
    seconds: Seconds = 60,
    seed: Seed = None,
    nodes: Nodes = 2,
    processes: Processes = 2,
    faults: Faults = "all",
    schema: Schema = SCHEMA,
    keep: Keep = False,
    json: Json = False,
) -> None:
    """Publish in every way, attack a cluster, and check that every event was delivered, once and in order.

    Worker processes are killed and frozen, connections are cut, and handlers hang, while publishers of the run write.
    Exit code 0: every promise was kept. 1: a promise was broken, and the history is kept. 2: wrong usage. Extra: lab.

    Example: partbox chaos --embedded --seconds 60
    """
    # Imported here, since this is a seventh of the code that every other command would load.
    from partbox_lab.chaos import ChaosPlan, chosen, perform

    if (dsn is None) != embedded:
        raise typer.BadParameter("give either --dsn DSN or --embedded: the run publishes and breaks things")
    _checked(lambda: settings.load(schema=schema))
    plan = ChaosPlan(
        seconds=seconds,
        seed=random.randrange(1_000_000) if seed is None else seed,
        nodes=nodes,
        processes=processes,
        faults=_checked(lambda: chosen(faults)),
        dsn=dsn,
        schema=schema,
        keep=keep,
    )
    report = perform(plan, sys.stderr)
    if json:
        print_json(report.plain())
    else:
        make_console().print("", report.table(), "", report.verdict(), sep="\n")
    raise typer.Exit(report.code)


def _checked(read: Callable[[], R]) -> R:
    """Return the value of an option. A `SettingsError` becomes a usage error."""
    try:
        return read()
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from None
