"""The nodes that deliver for an outbox: one in an application, or one for each database of a command line."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from partbox.codecs import Codecs
from partbox.db import connect
from partbox.db.schema.outbox_database import OutboxDatabase
from partbox.handlers import Handlers
from partbox.observe.logs.log_event import log_event
from partbox.observe.logs.setup import worker_level
from partbox.observe.metrics.registry import ApplicationRegistry, displays
from partbox.operations import arguments
from partbox.operations.subscriptions import Subscriptions
from partbox.sinks.dead import build_dead_sender
from partbox.supervisor.child import Job
from partbox.supervisor.foreground import run
from partbox.supervisor.serving import Pages, serve_pages
from partbox.supervisor.supervisor import Supervisor
from partbox.supervisor.systemd import report_unneeded
from partbox.text.dsn import database_names

log = logging.getLogger("partbox")

LoadHandlers = Callable[[], tuple[Handlers, Codecs]]


@dataclass(frozen=True, slots=True)
class Nodes:
    """The worker processes to run for an outbox.

    None leaves `processes` and `concurrency` to the settings. `load` gives a worker process its handlers and codecs;
    None sends those of this process. `dead_to` is a URL to which dead events are sent, at least once: file:PATH (JSON
    lines), stdout:, http(s)://… `prepare` may make a subscription before it is needed.
    """

    database: OutboxDatabase
    handlers: Handlers
    codecs: Codecs
    registry: ApplicationRegistry = field(default_factory=ApplicationRegistry)
    _: KW_ONLY
    subscription: str = "default"
    processes: int | None = None
    concurrency: int | None = None
    load: LoadHandlers | None = None
    dead_to: str | None = None
    prepare: Callable[[Subscriptions], object] | None = None

    def supervisor(self, dsn: str | None = None, name: str = "", *, metrics: bool = False) -> Supervisor:
        """The node for the database of `dsn` (None: that of the outbox), not started yet.

        `name` is that of the database among several: such a node starts without it if it has to, and goes on trying.
        `metrics`: have them counted; with a registry they always are.
        """
        settings = self.database.settings
        if self.dead_to is not None:
            build_dead_sender(self.dead_to)  # refuses a wrong one here, not in every process
        dsn_source = self.database.source(dsn) if name else self.database.resolve(dsn)
        meters = self.registry.separate(
            self.subscription, *self.handlers.names(self.subscription, settings), wanted=metrics
        )
        job = Job(
            settings,
            self.load or partial(_return_both, self.handlers, self.codecs),
            dsn_source,
            self.subscription,
            arguments.count("concurrency", self.concurrency, settings.concurrency),
            worker_level(settings),
            self.dead_to,
            None if meters is None else meters.layout,
            name,
        )
        return Supervisor(
            job,
            handlers=self.handlers,
            processes=arguments.count("processes", self.processes, settings.processes),
            meters=meters,
            prepare=partial(self._enter, dsn, dsn_source),
        )

    def _enter(self, dsn: str | None, dsn_source: Callable[[], str]) -> None:
        """Make what a node needs in its database."""
        self.database.prepare(dsn, dsn_source)
        if self.prepare is not None:
            self.prepare(Subscriptions(dsn_source, self.database.settings))

    def run(self, dsns: Sequence[str] = (), *, pages: Pages | None = None, until_empty: bool = False) -> int:
        """Run a node for each of the DSNs until SIGTERM, SIGINT or SIGHUP; the exit code.

        Without DSNs there is one, for the outbox's own. With several, `processes` applies to each; one that is unusable
        is tried again, but at least one must be usable at the start. `until_empty` ends it when all is delivered, or
        with 1 when what is left cannot be for now. `pages` of each database are served beside metrics and health
        checks.
        """
        settings = self.database.settings
        if not settings.enabled:
            text = "enabled is false: nothing is delivered; publishing works"
            log_event(log, "disabled", text)
            report_unneeded(text)
            return 0
        names = database_names([connect.resolve(dsn) for dsn in dsns]) if len(dsns) > 1 else [""]
        metrics = settings.http is not None
        nodes = [self.supervisor(*each, metrics=metrics) for each in zip(dsns or (None,), names, strict=True)]
        with serve_pages(settings.http, nodes, pages, displays(self.handlers.observers)):
            return run(nodes, until_empty=until_empty)


def _return_both(handlers: Handlers, codecs: Codecs) -> tuple[Handlers, Codecs]:
    return handlers, codecs
