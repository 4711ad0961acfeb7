"""Serves metrics, health checks and pages of running supervisors over HTTP."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from partbox.db.inspect.cached_overview import CachedOverview
from partbox.http.address import Address, address, names
from partbox.http.server import HttpServer, check_installed
from partbox.observe.collector import DatabaseCollector
from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.health.health import Siblings, folder, siblings
from partbox.observe.health.vitals import MonitoredSupervisor
from partbox.observe.logs.log_event import log_event
from partbox.observe.metrics.meter import Meters
from partbox.observe.metrics.registry import Display
from partbox.settings import Settings
from partbox.supervisor.supervisor import Supervisor

log = logging.getLogger("partbox.http")

Pages = Callable[[Settings, Callable[[], str], Address, CachedOverview, Siblings], Sequence[Any]]
"""Makes Starlette's routes of pages about the outbox in a database, to be served at that address; they look at it
through the glance of the metrics, and tell of its siblings."""


@contextmanager
def served(
    where: str | None,
    supervisors: Sequence[Supervisor],
    pages: Pages | None = None,
    displays: Sequence[Display] = (),
) -> Iterator[None]:
    """Metrics and health checks at `where` (HOST:PORT), and pages of each supervisor's database, those of the first at
    the address itself; nothing if None. Metrics of the databases on the displays.

    PartboxError if it cannot be served there.
    """
    if where is None and not displays:
        yield
        return
    wanted = None if where is None else address(where)
    if wanted is not None:
        check_installed()
    prefix = supervisors[0].settings.metrics_prefix
    with ExitStack() as stack:
        glances = [_glance(supervisor, stack) for supervisor in supervisors]
        watched = [_watch(*each) for each in zip(supervisors, glances, strict=True)]
        for each in displays:
            stack.callback(each.show(prefix, DatabaseCollector(prefix, watched)))
        if wanted is not None:
            stack.callback(_server(wanted, supervisors, pages, glances, watched).stop)
        yield


def _server(
    wanted: Address,
    supervisors: Sequence[Supervisor],
    pages: Pages | None,
    glances: Sequence[CachedOverview],
    watched: Sequence[MonitoredSupervisor],
) -> HttpServer:
    """The server at this address, started."""
    from starlette.applications import Starlette

    from partbox.http.routes import routes

    settings = supervisors[0].settings
    more = _pages(supervisors, pages, wanted, glances, watched) if pages is not None else ()
    probes = routes(settings.metrics_prefix, watched, names(wanted.host, settings.http_names))
    server = HttpServer(Starlette(routes=[*probes, *more]), *wanted)
    server.start()
    text = f"metrics and health checks at %s{', with the live page' if more else ''}"
    log_event(log, "http_started", text, server.address, address=server.address)
    return server


def _pages(
    supervisors: Sequence[Supervisor],
    pages: Pages,
    wanted: Address,
    glances: Sequence[CachedOverview],
    watched: Sequence[MonitoredSupervisor],
) -> list[Any]:
    from starlette.routing import Mount

    made = [
        pages(each.settings, each.dsn, wanted, glance, partial(siblings, watched, place))
        for place, (each, glance) in enumerate(zip(supervisors, glances, strict=True))
    ]
    others = [Mount(f"/{folder(place)}", routes=routes) for place, routes in enumerate(made) if place]
    return [*others, *made[0]]


def _glance(supervisor: Supervisor, stack: ExitStack) -> CachedOverview:
    glance = CachedOverview(supervisor.settings, supervisor.dsn)
    glance.list_partitions(supervisor.subscription)
    stack.callback(glance.close)
    return glance


def _watch(supervisor: Supervisor, glance: CachedOverview) -> MonitoredSupervisor:
    return MonitoredSupervisor(
        supervisor.database,
        supervisor.settings.node,
        supervisor.subscription,
        supervisor.meters if supervisor.meters is not None else Meters(()),
        DatabaseProbe(glance.overview, supervisor.database),
        supervisor.vitals,
    )
