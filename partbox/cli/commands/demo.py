"""`partbox demo`: delivers events of a simulated shop while processes are killed."""

import os
import sys
from contextlib import nullcontext
from typing import Annotated

import typer

from partbox.cli.shell.options import Json, flag, option
from partbox.cli.shell.output import make_console, print_json
from partbox.demo.run import DemoPlan, run_demo

Seconds = Annotated[float, option("N", "Seconds until the demo ends; 0 = at Ctrl-C.", min=0)]
Processes = Annotated[int, option("N", "Worker processes.", min=1, max=64)]
Rate = Annotated[float, option("N", "Events per second that the shop publishes.", min=1)]
NoChaos = Annotated[bool, flag("Kill no process, add none.", "--no-chaos")]
Dsn = Annotated[
    str | None,
    option("DSN", "Use this database, in a separate schema (else an embedded database; never the one of PARTBOX_DSN)."),
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

    Everything the demo makes is removed at the end. Ctrl-C ends the demo, a second Ctrl-C at once. Exit code 1 if an
    event was lost, made up or out of order.

    Example: partbox demo --seconds 30
    """
    # The JSON is written to standard output, so the view then goes to standard error.
    with os.fdopen(os.dup(2), "w") if json else nullcontext(sys.stdout) as out:
        summary = run_demo(DemoPlan(seconds, processes, rate, not no_chaos, dsn), out)
    if json:
        print_json(summary.to_plain())
    else:
        make_console().print("", summary.build_table(), "", summary.render_verdict(), sep="\n")
    raise typer.Exit(summary.exit_code)
