"""`/metrics`, `/healthz`, `/readyz`. Needs `partbox[http]`."""

from collections.abc import Callable, Sequence

import orjson
from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from partbox.observe.collector import registry_of
from partbox.observe.health import Answer, Health
from partbox.observe.node import Watched

FRESH = {"Cache-Control": "no-store"}


def routes(prefix: str, watched: Sequence[Watched]) -> list[BaseRoute]:
    """The routes of a node; they are answered in threads, for they may wait for a database."""
    registry, health = registry_of(prefix, watched), Health(watched)

    def metrics(request: Request) -> Response:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": kind, **FRESH})

    return [
        Route("/metrics", metrics),
        Route("/healthz", _probe(health.alive)),
        Route("/readyz", _probe(health.ready)),
    ]


def _probe(ask: Callable[[], Answer]) -> Callable[[Request], Response]:
    def probe(_: Request) -> Response:
        answer = ask()
        body = orjson.dumps(answer.body, option=orjson.OPT_INDENT_2)
        return Response(body, status_code=answer.status, media_type="application/json", headers=FRESH)

    return probe
