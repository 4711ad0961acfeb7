"""`partbox worker`: runs the processes that deliver."""

import logging
from functools import partial
from typing import Annotated

import typer

from partbox.cli.options import Dsns, Schema, Subscription, Target
from partbox.cli.target import load_target

Processes = Annotated[
    int | None, typer.Option(min=1, metavar="N", show_default=False, help="Processes per database (else all cores).")
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, metavar="N", show_default=False, help="Handlers at once in a process (else 4).")
]
DeadTo = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        show_default=False,
        help="Send dead events there, at least once: file:PATH (JSON lines), stdout:, http(s)://…",
    ),
]
UntilEmpty = Annotated[bool, typer.Option("--until-empty", help="Exit when everything that is due was delivered.")]


def worker(
    target: Target,
    processes: Processes = None,
    concurrency: Concurrency = None,
    subscription: Subscription = "default",
    until_empty: UntilEmpty = False,
    dead_to: DeadTo = None,
    dsn: Dsns = None,
    schema: Schema = None,
) -> None:
    """Deliver events to the handlers of an outbox until stopped.

    SIGTERM or Ctrl-C lets running handlers finish; Ctrl-C twice stops at once, and what ran is delivered again.

    Example: partbox worker shop:outbox --processes 4 --concurrency 8
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    outbox = load_target(target)
    code = outbox.run(
        processes=processes,
        concurrency=concurrency,
        subscription=subscription,
        until_empty=until_empty,
        schema=schema,
        dsns=dsn or (),
        source=partial(load_target, target),
        dead_to=dead_to,
    )
    raise typer.Exit(code)
