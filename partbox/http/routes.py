"""Routes `/metrics`, `/healthz` and `/readyz` of a node, for safe host names only. Needs `partbox[worker]`."""

from collections.abc import Sequence

import orjson
from prometheus_client.exposition import choose_encoder
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from partbox.http.address import ELSEWHERE, AllowedHosts
from partbox.observe.collector import build_registry
from partbox.observe.health.health import Health, HealthReport
from partbox.observe.health.vitals import MonitoredSupervisor

NO_EXTRA_HOSTS = AllowedHosts()
FRESH = {"Cache-Control": "no-store"}


def guard_hosts(app: ASGIApp, allowed_hosts: AllowedHosts) -> ASGIApp:
    """Wrap an ASGI application so that requests with a `Host` header that is not allowed get the status 403."""
    # Such a name may be another site's (DNS rebinding).

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        admitted = allowed_hosts.is_allowed(Headers(scope=scope).get("host", ""))
        await (app if admitted else PlainTextResponse(ELSEWHERE, 403, FRESH))(scope, receive, send)

    return serve


def build_routes(
    prefix: str, monitored: Sequence[MonitoredSupervisor], allowed_hosts: AllowedHosts = NO_EXTRA_HOSTS
) -> list[BaseRoute]:
    """Return the HTTP routes of a node: metrics and health checks."""
    # Endpoints that may wait for a database run in threads. `/healthz` does not, because all threads may be waiting.
    registry, health = build_registry(prefix, monitored), Health(monitored)

    def metrics(request: Request) -> Response:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": kind, **FRESH})

    async def healthz(_: Request) -> Response:
        return _build_response(health.check_liveness())

    def readyz(_: Request) -> Response:
        return _build_response(health.check_readiness())

    guard = [Middleware(guard_hosts, allowed_hosts)]
    return [
        Route("/metrics", metrics, middleware=guard),
        Route("/healthz", healthz, middleware=guard),
        Route("/readyz", readyz, middleware=guard),
    ]


def _build_response(answer: HealthReport) -> Response:
    body = orjson.dumps(answer.body, option=orjson.OPT_INDENT_2)
    return Response(body, status_code=answer.http_status, media_type="application/json", headers=FRESH)
