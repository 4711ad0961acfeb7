"""`partbox worker`: runs the processes that deliver."""

from functools import partial

import typer

from partbox.cli.shell.node import (
    Concurrency,
    DeadTo,
    Http,
    LogFormat,
    LogLevel,
    Processes,
    UntilEmpty,
    configured,
    node_flags,
    pages,
    several,
    surroundings,
)
from partbox.cli.shell.options import Dsns, Schema, Subscription, Target
from partbox.cli.shell.target import load_target


def worker(  # its parameters are its options
    target: Target,
    processes: Processes = None,
    concurrency: Concurrency = None,
    subscription: Subscription = "default",
    until_empty: UntilEmpty = False,
    dead_to: DeadTo = None,
    http: Http = None,
    dsn: Dsns = None,
    schema: Schema = None,
    log_format: LogFormat = None,
    log_level: LogLevel = None,
) -> None:
    """Deliver events to the handlers of an outbox until stopped.

    SIGTERM or Ctrl-C lets running handlers finish; Ctrl-C twice stops at once, and what ran is delivered again.

    Example: partbox worker shop:outbox --processes 4 --concurrency 8
    """
    flags = node_flags(dsn, schema, processes, concurrency, http, log_format, log_level)
    configured(surroundings(flags))
    outbox = load_target(target, flags)
    configured(outbox.settings)  # its own keywords, perhaps
    if outbox.settings.enabled:
        where = f" in module {target.partition(':')[0]!r}, which was imported, or in one that it imports"
        outbox.handlers.require(subscription, outbox.settings, where)
    code = outbox.run(
        subscription=subscription,
        until_empty=until_empty,
        dsns=several(dsn),
        source=partial(load_target, target, flags),
        dead_to=dead_to,
        pages=pages,
    )
    raise typer.Exit(code)
