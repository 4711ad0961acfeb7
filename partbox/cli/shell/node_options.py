"""Options, settings and pages of the commands that run a node: `worker` and `relay`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from partbox import settings
from partbox.cli.shell.flags import typed
from partbox.cli.shell.options import Dsns, Schema
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.errors import SettingsError
from partbox.http.address import Address
from partbox.observe.health.siblings import Siblings
from partbox.observe.logs.setup import configure, level_said
from partbox.supervisor import nodes as nodes  # before an application is imported, which may change imports

Processes = Annotated[
    int | None, typer.Option(min=1, metavar="N", show_default=False, help="Processes per database (else all cores).")
]
Concurrency = Annotated[
    int | None, typer.Option(min=1, metavar="N", show_default=False, help="Concurrent handlers of a process (else 4).")
]
DeadTo = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        show_default=False,
        help="Send dead events to it, at least once: file:PATH (JSON lines), stdout:, http(s)://…",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        show_default=False,
        help="Address of metrics, health checks and the live page; :9464 is this machine alone (else PARTBOX_HTTP).",
    ),
]
LogFormat = Annotated[
    str | None,
    typer.Option(
        metavar="text|json",
        show_default=False,
        help="Log format: text, or json, an object a line (else PARTBOX_LOG_FORMAT, text).",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        show_default=False,
        help="Lowest level to log: debug, info, warning or error (else PARTBOX_LOG_LEVEL, info).",
    ),
]
UntilEmpty = Annotated[bool, typer.Option("--until-empty", help="Exit when everything that is due is delivered.")]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The address, the databases and the log of a node."""

    http: Http = None
    dsn: Dsns = None
    schema: Schema = None
    log_format: LogFormat = None
    log_level: LogLevel = None

    def flags(self, processes: int | None, concurrency: int | None) -> dict[str, Any]:
        """The settings that were typed, by name; no DSN among them if there are several."""
        given = asdict(self) | {"processes": processes, "concurrency": concurrency}
        return typed() | given | {"dsn": self.dsn[0] if self.dsn and len(self.dsn) == 1 else None}

    @property
    def several(self) -> Sequence[str]:
        """The DSNs, if there are several; none otherwise: the settings have it then."""
        return self.dsn if self.dsn and len(self.dsn) > 1 else ()


def pages(
    chosen: settings.Settings, dsn: Callable[[], str], address: Address, glance: CachedOverview, siblings: Siblings
) -> list[Any]:
    """The live page; loaded only where it is served."""
    from partbox import dashboard

    return [*dashboard.pages(chosen, dsn, address, glance, siblings)]


def configured(chosen: settings.Settings) -> settings.Settings:
    """The settings, by which this process logs from now on."""
    configure(chosen.log_format, level_said(chosen))
    return chosen


def surroundings(flags: Mapping[str, Any]) -> settings.Settings:
    """The settings without the outbox; an error in the environment alone is left to the outbox to raise."""
    try:
        return settings.load(flags=flags)
    except SettingsError:
        if flags:
            raise
        return settings.Settings()
