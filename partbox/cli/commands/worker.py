"""`partbox worker`: runs the processes that deliver."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import typer

from partbox import settings
from partbox.cli.shell.flags import typed
from partbox.cli.shell.options import Dsns, Schema, Subscription, Target
from partbox.cli.shell.target import load_target
from partbox.db.glance import Glance
from partbox.errors import SettingsError
from partbox.observe.address import Address
from partbox.observe.logs import configure, level_said
from partbox.observe.siblings import Siblings

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
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        show_default=False,
        help="Serve metrics, health checks and the live page there; :9464 is this machine alone (else PARTBOX_HTTP).",
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        metavar="text|json",
        show_default=False,
        help="How to log: text, or json, an object a line (else PARTBOX_LOG_FORMAT, text).",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        show_default=False,
        help="The least level to log: debug, info, warning or error (else PARTBOX_LOG_LEVEL, info).",
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
    dsns = dsn or []
    flags = typed() | {
        "dsn": dsns[0] if len(dsns) == 1 else None,
        "schema": schema,
        "processes": processes,
        "concurrency": concurrency,
        "http": http,
        "log_format": log_format,
        "log_level": log_level,
    }
    configured(surroundings(flags))
    outbox = load_target(target, flags)
    configured(outbox.settings)  # its own keywords, perhaps
    if outbox.settings.enabled:
        where = f" in module {target.partition(':')[0]!r}, which was imported, or in one that it imports"
        outbox.handlers.require(subscription, outbox.settings, where)
    code = outbox.run(
        subscription=subscription,
        until_empty=until_empty,
        dsns=dsns[1:] and dsns,
        source=partial(load_target, target, flags),
        dead_to=dead_to,
        pages=pages,
    )
    raise typer.Exit(code)


def pages(
    chosen: settings.Settings, dsn: Callable[[], str], address: Address, glance: Glance, siblings: Siblings
) -> list[Any]:
    """The live page; loaded only where it is served."""
    from partbox import dashboard

    return [*dashboard.pages(chosen, dsn, address, glance, siblings)]


def configured(chosen: settings.Settings) -> None:
    """Log as these settings say."""
    configure(chosen.log_format, level_said(chosen))


def surroundings(flags: Mapping[str, Any]) -> settings.Settings:
    """The settings before the outbox is there; what is wrong with the surroundings it will say itself."""
    try:
        return settings.load(flags=flags)
    except SettingsError:
        if flags:
            raise
        return settings.Settings()
