"""`partbox worker`: runs the processes that deliver."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from partbox import settings
from partbox.cli.flags import typed
from partbox.cli.options import Dsns, Schema, Subscription, Target
from partbox.cli.target import load_target
from partbox.db.glance import Glance
from partbox.errors import SettingsError
from partbox.observe.address import Address
from partbox.observe.logs import Format, configure

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
    }
    configure(_log_format(log_format))
    outbox = load_target(target, flags)
    configure(outbox.settings.log_format)  # its own keyword, perhaps
    code = outbox.run(
        subscription=subscription,
        until_empty=until_empty,
        dsns=dsns[1:] and dsns,
        source=partial(load_target, target, flags),
        dead_to=dead_to,
        pages=_pages,
    )
    raise typer.Exit(code)


def _pages(chosen: settings.Settings, dsn: Callable[[], str], address: Address, glance: Glance) -> list[Any]:
    """The live page; loaded only where it is served."""
    from partbox.dashboard import pages

    return [*pages(chosen, dsn, address, glance)]


def _log_format(flag: str | None) -> Format:
    """The flag, or what the surroundings say before the outbox is there; what is wrong with them it will say itself."""
    try:
        return settings.load(flags={"log_format": flag}).log_format
    except SettingsError:
        if flag is not None:
            raise
        return "text"
