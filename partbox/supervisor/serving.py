"""The HTTP service of running supervisors: metrics, health checks and pages."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from partbox.db.inspect.cached_overview import CachedOverview
from partbox.doctor.case import Severity
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import LONG_TRANSACTION, limits_of
from partbox.http.address import Address, build_allowed_hosts, parse_address
from partbox.http.server import HttpServer, check_installed
from partbox.observe.collector import DatabaseCollector
from partbox.observe.health.database_probe import DatabaseProbe
from partbox.observe.health.doctor_rounds import Counts, DoctorRounds, Wait
from partbox.observe.health.health import Siblings, build_folder, list_siblings
from partbox.observe.health.vitals import MonitoredSupervisor
from partbox.observe.logs.log_event import log_event
from partbox.observe.metrics.meter import Meters
from partbox.observe.metrics.registry import Display
from partbox.settings import Settings
from partbox.supervisor.supervisor import Supervisor

log = logging.getLogger("partbox.http")

# A function that builds Starlette routes of pages about the outbox in a database, served at the address. The pages read
# the database through the overview cache of the metrics, and link to the pages of sibling databases.
Pages = Callable[[Settings, Callable[[], str], Address, CachedOverview, Siblings], Sequence[Any]]


@contextmanager
def serve_pages(
    listen_at: str | None,
    supervisors: Sequence[Supervisor],
    pages: Pages | None = None,
    displays: Sequence[Display] = (),
) -> Iterator[None]:
    """Serve metrics, health checks and `pages` over HTTP at `listen_at` during the `with` block."""
    # `listen_at` is HOST:PORT, or None. The first database's pages are at the root. Metrics are also shown on
    # `displays`. `PartboxError` is raised if the address cannot be served.
    if listen_at is None and not displays:
        yield
        return
    listen_address = None if listen_at is None else parse_address(listen_at)
    if listen_address is not None:
        check_installed()
    prefix = supervisors[0].settings.metrics_prefix
    with ExitStack() as stack:
        # The caches must close last: the server and the displays use them.
        overview_caches = [_open_cache(supervisor, stack) for supervisor in supervisors]
        rounds = DoctorRounds([partial(_count_findings, each) for each in supervisors])
        stack.callback(rounds.close)
        monitored = [
            _monitor(supervisor, overview_caches[position], partial(rounds.read_counts, position))
            for position, supervisor in enumerate(supervisors)
        ]
        for each in displays:
            stack.callback(each.export_collector(prefix, DatabaseCollector(prefix, monitored)))
        if listen_address is not None:
            stack.callback(_start_server(listen_address, supervisors, pages, overview_caches, monitored).stop)
        yield


def _start_server(
    listen_address: Address,
    supervisors: Sequence[Supervisor],
    pages: Pages | None,
    overview_caches: Sequence[CachedOverview],
    monitored: Sequence[MonitoredSupervisor],
) -> HttpServer:
    from starlette.applications import Starlette

    from partbox.http.routes import build_routes

    settings = supervisors[0].settings
    more = _build_routes(supervisors, pages, listen_address, overview_caches, monitored) if pages is not None else ()
    probes = build_routes(
        settings.metrics_prefix, monitored, build_allowed_hosts(listen_address.host, settings.http_names)
    )
    server = HttpServer(Starlette(routes=[*probes, *more]), *listen_address)
    server.start()
    text = f"metrics and health checks at %s{', with the live page' if more else ''}"
    log_event(log, "http_started", text, server.url, address=server.url)
    return server


def _build_routes(
    supervisors: Sequence[Supervisor],
    pages: Pages,
    listen_address: Address,
    overview_caches: Sequence[CachedOverview],
    monitored: Sequence[MonitoredSupervisor],
) -> list[Any]:
    # The first database is at the root, the others are each in a folder.
    from starlette.routing import Mount

    made = [
        pages(each.settings, each.dsn, listen_address, overview_cache, partial(list_siblings, monitored, position))
        for position, (each, overview_cache) in enumerate(zip(supervisors, overview_caches, strict=True))
    ]
    others = [Mount(f"/{build_folder(position)}", routes=routes) for position, routes in enumerate(made) if position]
    return [*others, *made[0]]


def _open_cache(supervisor: Supervisor, stack: ExitStack) -> CachedOverview:
    overview_cache = CachedOverview(supervisor.settings, supervisor.dsn)
    overview_cache.list_partitions(supervisor.subscription)
    stack.callback(overview_cache.close)
    return overview_cache


def _count_findings(supervisor: Supervisor, wait: Wait) -> Counts:
    limits = limits_of(supervisor.settings, LONG_TRANSACTION)
    found = examine_outbox(supervisor.dsn, supervisor.settings, limits, wait=wait).findings
    return {each.value: sum(finding.severity is each for finding in found) for each in Severity}


def _monitor(
    supervisor: Supervisor, overview_cache: CachedOverview, count_problems: Callable[[], Counts | None]
) -> MonitoredSupervisor:
    return MonitoredSupervisor(
        supervisor.database,
        supervisor.settings.node,
        supervisor.subscription,
        supervisor.meters if supervisor.meters is not None else Meters(()),
        DatabaseProbe(overview_cache.read_overview, supervisor.database),
        supervisor.read_vitals,
        count_problems,
    )
