"""Options, logging and pages of the commands that run a node: `worker` and `relay`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer

from partbox import settings
from partbox.cli.shell.flags import read_typed_flags
from partbox.cli.shell.options import Schema, flag, option
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.errors import SettingsError
from partbox.http.address import Address
from partbox.observe.health.health import Siblings
from partbox.observe.logs.setup import configure_logging, find_configured_level

# Import this before an application, which may change how imports work.
from partbox.supervisor.nodes import Nodes


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The command-line options that `worker` and `relay` share: processes, addresses, databases and logs."""

    processes: Annotated[int | None, option("N", "Processes per database (else all cores).", min=1)] = None
    concurrency: Annotated[int | None, option("N", "Concurrent handlers of a process (else 4).", min=1)] = None
    until_empty: Annotated[
        bool,
        flag("Exit when all events are delivered; with 1 if some events cannot be delivered for now.", "--until-empty"),
    ] = False
    dead_to: Annotated[
        str | None,
        option("URL", "Send dead events to this URL, at least once: file:PATH (JSON lines), stdout:, http(s)://…"),
    ] = None
    http: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "Address of metrics, health checks and the live page; :9464 listens on this machine only "
            "(else PARTBOX_HTTP).",
        ),
    ] = None
    dsn: Annotated[
        list[str] | None, option("DSN", "The database (else PARTBOX_DSN); repeatable; --processes applies to each.")
    ] = None
    schema: Schema = None
    log_format: Annotated[
        str | None,
        option("text|json", "Log format: text, or json: one object per line (else PARTBOX_LOG_FORMAT, text)."),
    ] = None
    log_level: Annotated[
        str | None,
        option("LEVEL", "Lowest level to log: debug, info, warning or error (else PARTBOX_LOG_LEVEL, info)."),
    ] = None

    def collect_flags(self) -> dict[str, Any]:
        """Return the settings that were typed as options, by name. With several databases, the DSN is left out."""
        names = ("processes", "concurrency", "http", "schema", "log_format", "log_level")
        given = {name: getattr(self, name) for name in names}
        return read_typed_flags() | given | {"dsn": self.dsn[0] if self.dsn and len(self.dsn) == 1 else None}

    def run_nodes(self, nodes: Nodes) -> NoReturn:
        """Run the worker processes of this node until they end, and exit the process."""
        # If there are several DSNs, each has nodes of its own.
        several = self.dsn if self.dsn and len(self.dsn) > 1 else ()
        raise typer.Exit(nodes.run(several, pages=_build_pages, until_empty=self.until_empty))


def _build_pages(
    chosen: settings.Settings,
    dsn: Callable[[], str],
    address: Address,
    overview_cache: CachedOverview,
    siblings: Siblings,
) -> list[Any]:
    from partbox import dashboard

    return [*dashboard.build_pages(chosen, dsn, address, overview_cache, siblings)]


def apply_logging(chosen: settings.Settings) -> settings.Settings:
    # The settings are the format and the level.
    configure_logging(chosen.log_format, find_configured_level(chosen))
    return chosen


def load_without_outbox(flags: Mapping[str, Any]) -> settings.Settings:
    """Load the settings and configure logging before the user's outbox is imported."""
    # The values that the outbox itself sets are missing. An error that comes from the environment alone is raised
    # later, when the outbox loads its settings.
    try:
        return apply_logging(settings.load(flags=flags))
    except SettingsError:
        if flags:
            raise
        return apply_logging(settings.Settings())
