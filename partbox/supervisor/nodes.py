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
from partbox.observe.logs.setup import find_worker_level
from partbox.observe.metrics.registry import ApplicationRegistry, list_displays
from partbox.operations import arguments
from partbox.operations.subscriptions import Subscriptions
from partbox.sinks.dead import build_dead_sender
from partbox.supervisor.child import Job
from partbox.supervisor.foreground import run_supervisors
from partbox.supervisor.serving import Pages, serve_pages
from partbox.supervisor.supervisor import Supervisor
from partbox.supervisor.systemd import report_unneeded
from partbox.text.dsn import list_database_names

log = logging.getLogger("partbox")

LoadHandlers = Callable[[], tuple[Handlers, Codecs]]


@dataclass(frozen=True, slots=True)
class Nodes:
    """The common configuration of an outbox's supervisors, by which they are built and run."""

    # There is a supervisor for each node. `processes` and `concurrency` come from the settings if they are None.
    # `load_handlers` gives a worker process its handlers and codecs. If it is None, the handlers of this process are
    # sent. `dead_to` is a URL to which dead events are sent, at least once: file:PATH (JSON lines), stdout:,
    # http(s)://… `prepare` may create a subscription before it is needed.

    database: OutboxDatabase
    handlers: Handlers
    codecs: Codecs
    registry: ApplicationRegistry = field(default_factory=ApplicationRegistry)
    _: KW_ONLY
    subscription: str = "default"
    processes: int | None = None
    concurrency: int | None = None
    load_handlers: LoadHandlers | None = None
    dead_to: str | None = None
    prepare: Callable[[Subscriptions], object] | None = None

    def build_supervisor(self, dsn: str | None = None, name: str = "", *, metrics: bool = False) -> Supervisor:
        """Build the supervisor for the database `dsn` (None: the outbox's own), without starting it."""
        # `name` is its name among several databases: the node then starts even without it, and tries again. `metrics`:
        # count them, which is always done with a registry.
        settings = self.database.settings
        if self.dead_to is not None:
            # Refuse a wrong URL here, and not in every process.
            build_dead_sender(self.dead_to)
        dsn_source = self.database.build_dsn_source(dsn) if name else self.database.resolve_dsn(dsn)
        meters = self.registry.build_node_meters(
            self.subscription, *self.handlers.list_names(self.subscription, settings), wanted=metrics
        )
        job = Job(
            settings,
            self.load_handlers or partial(_return_both, self.handlers, self.codecs),
            dsn_source,
            self.subscription,
            arguments.check_count("concurrency", self.concurrency, settings.concurrency),
            find_worker_level(settings),
            self.dead_to,
            None if meters is None else meters.layout,
            name,
        )
        return Supervisor(
            job,
            handlers=self.handlers,
            processes=arguments.check_count("processes", self.processes, settings.processes),
            meters=meters,
            prepare=partial(self._prepare_database, dsn, dsn_source),
        )

    def _prepare_database(self, dsn: str | None, dsn_source: Callable[[], str]) -> None:
        self.database.prepare_schema(dsn, dsn_source)
        if self.prepare is not None:
            self.prepare(Subscriptions(dsn_source, self.database.settings))

    def run(self, dsns: Sequence[str] = (), *, pages: Pages | None = None, until_empty: bool = False) -> int:
        """Deliver events from each database until a stop signal arrives. Return the program's exit status.

        Without DSNs there is one node, for the outbox's own database. With several, `processes` applies to each. An
        unusable database is tried again, but at least one must be usable at the start. With `until_empty`, the nodes
        end when all is delivered, or with status 1 when the remaining events cannot be delivered for now. `pages` of
        each database are served beside metrics and health checks."""
        # There is a node for each DSN. The signals are SIGTERM, SIGINT and SIGHUP.
        settings = self.database.settings
        if not settings.enabled:
            text = "enabled is false: nothing is delivered; publishing works"
            log_event(log, "disabled", text)
            report_unneeded(text)
            return 0
        names = list_database_names([connect.resolve_dsn(dsn) for dsn in dsns]) if len(dsns) > 1 else [""]
        metrics = settings.http is not None
        nodes = [self.build_supervisor(*each, metrics=metrics) for each in zip(dsns or (None,), names, strict=True)]
        with serve_pages(settings.http, nodes, pages, list_displays(self.handlers.observers)):
            return run_supervisors(nodes, until_empty=until_empty)


def _return_both(handlers: Handlers, codecs: Codecs) -> tuple[Handlers, Codecs]:
    return handlers, codecs
