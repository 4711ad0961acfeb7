"""`/metrics`, `/healthz`, `/readyz`. Needs `partbox[http]`."""

from collections.abc import Sequence

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
    """The routes of a node. What may wait for a database is answered in threads; whether it lives is not, for all of
    those may be waiting."""
    registry, health = registry_of(prefix, watched), Health(watched)

    def metrics(request: Request) -> Response:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": kind, **FRESH})

    async def healthz(_: Request) -> Response:
        return _response(health.alive())

    def readyz(_: Request) -> Response:
        return _response(health.ready())

    return [
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
    ]


def _response(answer: Answer) -> Response:
    body = orjson.dumps(answer.body, option=orjson.OPT_INDENT_2)
    return Response(body, status_code=answer.status, media_type="application/json", headers=FRESH)
