"""The live page: partitions, processes, rates, blocked and dead records, and the remedies."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from partbox.dashboard.access import Access, access
from partbox.dashboard.feed import Diagnosis, Feed
from partbox.dashboard.frame import ProcessLabels, from_roster, own
from partbox.dashboard.operator_actions import OperatorActions
from partbox.dashboard.routes import PageRoutes
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.doctor.doctor import examine
from partbox.doctor.limits import TRANSACTION, limits_of
from partbox.http.address import Address
from partbox.http.server import HttpServer
from partbox.observe.health.health import Siblings
from partbox.settings import Settings

__all__ = ["Access", "access", "from_roster", "pages", "routes", "standalone"]


def routes(
    glance: CachedOverview,
    dsn: Callable[[], str],
    settings: Settings,
    access: Access,
    labels: Callable[[], ProcessLabels] = own,
    siblings: Siblings = tuple,
) -> list[BaseRoute]:
    """The page and what is below it, for a Starlette application; give them last. `glance` may be shared with others,
    `siblings` are the databases of the node, if those are several.

    Data is read through `glance` while the page is watched; lists, actions and doctor open connections to `dsn()`.
    """
    diagnosis = Diagnosis(lambda: examine(dsn, settings, limits_of(settings, TRANSACTION)))
    feed = Feed(glance, settings.schema_name, labels, diagnosis=diagnosis, siblings=siblings)
    return PageRoutes(feed, OperatorActions(dsn, settings), access).routes()


def pages(
    settings: Settings, dsn: Callable[[], str], address: Address, glance: CachedOverview, siblings: Siblings = tuple
) -> list[BaseRoute]:
    """The page of a worker, served at `address`. The holder of `http_token` may act; nobody without that setting."""
    return routes(glance, dsn, settings, access(address, settings.http_token), siblings=siblings)


@contextmanager
def standalone(
    settings: Settings,
    dsn: Callable[[], str],
    where: Address,
    token: str | None,
    labels: Callable[[], ProcessLabels] = own,
) -> Iterator[str]:
    """Serve the page by itself; its URL, which carries the token (None: a new one): whoever has it may act.

    PartboxError if it cannot be served there.
    """
    allowed = access(where, token, new=True)
    with closing(CachedOverview(settings, dsn)) as glance:
        server = HttpServer(Starlette(routes=routes(glance, dsn, settings, allowed, labels)), *where)
        server.start()
        try:
            yield f"{server.address}/#token={allowed.token}"
        finally:
            server.stop()
