"""The live page: partitions, processes, rates, blocked and dead records, and the actions on them."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from partbox.dashboard.access import Access, ApplicationAccess, Guard, May, build_access
from partbox.dashboard.feed import Diagnosis, Feed
from partbox.dashboard.frame import ProcessLabels, from_roster, make_process_labels
from partbox.dashboard.history import DayOfLags
from partbox.dashboard.operator_actions import OperatorActions
from partbox.dashboard.record_views import RecordViews
from partbox.dashboard.routes import PageRoutes
from partbox.db.inspect.cached_overview import CachedOverview
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import LONG_TRANSACTION, limits_of
from partbox.http.address import Address
from partbox.http.server import HttpServer
from partbox.observe.health.health import Siblings
from partbox.settings import Settings

__all__ = [
    "Access",
    "May",
    "MountedPage",
    "build_access",
    "build_pages",
    "build_routes",
    "from_roster",
    "serve_standalone",
]


def build_routes(
    overview_cache: CachedOverview,
    dsn: Callable[[], str],
    settings: Settings,
    guard: Guard,
    labels: Callable[[], ProcessLabels] = make_process_labels,
    siblings: Siblings = tuple,
    lags: DayOfLags | None = None,
) -> list[BaseRoute]:
    """Return the dashboard's routes for a Starlette application."""
    # The routes must come after all other routes of the application.
    # `overview_cache` may be shared, and is read only while somebody watches. Lists, actions and doctor connect to
    # `dsn()`. `siblings` are the databases of the node, if it has several.
    diagnosis = Diagnosis(lambda: examine_outbox(dsn, settings, limits_of(settings, LONG_TRANSACTION)))
    name, _, colour = (settings.environment or "").partition(":")
    identity = {"environment": name or None, "colour": colour or "grey", "trace_url": settings.trace_url}
    feed = Feed(
        overview_cache,
        settings.schema_name,
        labels,
        diagnosis=diagnosis,
        siblings=siblings,
        identity=identity,
        lags=lags,
    )
    return PageRoutes(feed, OperatorActions(dsn, settings), RecordViews(dsn, settings), guard).build_routes()


def build_pages(
    settings: Settings,
    dsn: Callable[[], str],
    address: Address,
    overview_cache: CachedOverview,
    siblings: Siblings = tuple,
) -> list[BaseRoute]:
    """Return the routes of the dashboard that a worker process serves."""
    # Only the holder of the token in the setting `http_token` may act.
    # Without that setting nobody may act. The dashboard is served at `address`.
    allowed = build_access(address, settings.http_token, payloads=settings.http_payloads)
    lags = DayOfLags()
    lags.start_sampling(overview_cache)
    return build_routes(overview_cache, dsn, settings, allowed, siblings=siblings, lags=lags)


@contextmanager
def serve_standalone(
    settings: Settings,
    dsn: Callable[[], str],
    where: Address,
    token: str | None,
    labels: Callable[[], ProcessLabels] = make_process_labels,
) -> Iterator[str]:
    """Serve the dashboard on an HTTP server of its own, and yield its URL. Raise PartboxError if that fails."""
    # Every user who has the URL may act, because the URL carries `token`, or a new token if that is None. PartboxError
    # is raised if the page cannot be served at the address.
    allowed = build_access(where, token, new=True, payloads=settings.http_payloads)
    lags = DayOfLags()
    with closing(CachedOverview(settings, dsn)) as overview_cache:
        lags.start_sampling(overview_cache)
        server = HttpServer(
            Starlette(routes=build_routes(overview_cache, dsn, settings, allowed, labels, lags=lags)), *where
        )
        server.start()
        try:
            yield f"{server.url}/#token={allowed.token}"
        finally:
            server.stop()


class MountedPage:
    """The dashboard as an ASGI application, for mounting in another application at any path.

    `may` decides about the rights of each request. The page reads the database while somebody watches."""

    def __init__(self, settings: Settings, dsn: Callable[[], str], may: May) -> None:
        self._overview_cache = CachedOverview(settings, dsn)
        self._lags = DayOfLags()
        self._app = Starlette(
            routes=build_routes(self._overview_cache, dsn, settings, ApplicationAccess(may), lags=self._lags)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._lags.start_sampling(self._overview_cache)
        await self._app(scope, receive, send)

    def close(self) -> None:
        """Close the dashboard's database connection for good. Viewers of the page see that it is closed."""
        # An application need not call this when it ends, because the connection ends with the process.
        self._overview_cache.close()
