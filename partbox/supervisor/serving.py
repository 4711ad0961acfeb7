"""Serves over HTTP what can be seen of supervisors while they run."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from partbox.db.glance import Glance
from partbox.observe.address import Address, address
from partbox.observe.hosts import names
from partbox.observe.looker import Looker
from partbox.observe.meter import Meters
from partbox.observe.node import Watched, database_names
from partbox.observe.server import HttpServer, check_installed
from partbox.observe.telling import tell
from partbox.settings import Settings
from partbox.supervisor.supervisor import Supervisor

log = logging.getLogger("partbox.http")

Pages = Callable[[Settings, Callable[[], str], Address, Glance], Sequence[Any]]
"""Makes Starlette's routes of pages about the outbox in a database, to be served at that address; they look at it
through the glance of the metrics."""


@contextmanager
def served(where: str | None, supervisors: Sequence[Supervisor], pages: Pages | None = None) -> Iterator[None]:
    """Metrics and health checks at `where` (HOST:PORT), and pages of the first supervisor's database; nothing if None.

    PartboxError if it cannot be served there.
    """
    if where is None:
        yield
        return
    wanted = address(where)
    check_installed()
    from starlette.applications import Starlette

    from partbox.observe.http import routes

    first = supervisors[0]
    with ExitStack() as stack:
        glances = [_glance(supervisor, stack) for supervisor in supervisors]
        watched = _watched(supervisors, glances)
        more = pages(first.settings, first.dsn, wanted, glances[0]) if pages is not None else ()
        probes = routes(first.settings.metrics_prefix, watched, names(wanted.host, first.settings.http_names))
        app = Starlette(routes=[*probes, *more])
        server = HttpServer(app, *wanted)
        server.start()
        stack.callback(server.stop)
        text = f"metrics and health checks at %s{', with the live page' if more else ''}"
        tell(log, "http_started", text, server.address, address=server.address)
        yield


def _glance(supervisor: Supervisor, stack: ExitStack) -> Glance:
    glance = Glance(supervisor.settings, supervisor.dsn)
    stack.callback(glance.close)
    return glance


def _watched(supervisors: Sequence[Supervisor], glances: Sequence[Glance]) -> list[Watched]:
    several = len(supervisors) > 1
    names = database_names([supervisor.dsn() for supervisor in supervisors]) if several else [""]
    return [_watch(*each) for each in zip(supervisors, names, glances, strict=True)]


def _watch(supervisor: Supervisor, database: str, glance: Glance) -> Watched:
    meters = supervisor.meters if supervisor.meters is not None else Meters(())
    return Watched(
        database, supervisor.settings.node, supervisor.subscription, meters, Looker(glance.look), supervisor.vitals
    )
