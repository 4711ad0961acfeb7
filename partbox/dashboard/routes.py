"""The routes of the page: its files, the stream of frames, the lists of records, actions.

All paths are relative to where they are mounted. Data needs the right to look, actions (POST) the token; see access.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.resources import files
from typing import Any

import orjson
import psycopg
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from partbox.dashboard import request_params
from partbox.dashboard.access import Access
from partbox.dashboard.background_calls import SingleFlight, in_background, progress_lines
from partbox.dashboard.feed import Feed
from partbox.dashboard.operator_actions import PAGE, OperatorActions
from partbox.dashboard.page_text import LONG, error_text
from partbox.dashboard.request_params import ActionParams
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event

log = logging.getLogger("partbox.http")

Endpoint = Callable[[Request], Awaitable[Response]]

MOST_STREAMS = 50
"""Simultaneous viewers. A stream is a connection for as long as its page is open, and probes need some, too."""
TOO_MANY = f"{MOST_STREAMS} pages are watching already: close one, and this one will follow"

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

# Scripts and styles only from files of ours; nothing goes anywhere but here; nobody may put the page into a frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
EVENTS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
LINES = {"content-type": "application/x-ndjson; charset=utf-8", "x-accel-buffering": "no"}
DATA = HEADERS | {"cache-control": "no-store"}


class PageRoutes:
    """Makes the routes, guarded by `access`."""

    def __init__(self, feed: Feed, operator: OperatorActions, access: Access) -> None:
        self._feed = feed
        self._operator = operator
        self._access = access
        self._single_flight = SingleFlight()
        self._streams = 0

    def routes(self) -> list[BaseRoute]:
        acting = {path: self._acting(path, act) for path, act in self._operator.actions.items()}
        acting |= {path: self._bulk(act) for path, act in self._operator.bulk.items()}
        return [
            *_file_routes(),
            self._route("/events", self._events),
            self._route("/api/unlock", self._unlock, "POST"),
            self._route("/api/dead", self._dead),
            self._route("/api/dead-groups", self._dead_groups),
            self._route("/api/dead/{record}", self._show),
            self._route("/api/blocked", self._blocked),
            *(self._route(f"/api/{path}", endpoint, "POST") for path, endpoint in acting.items()),
        ]

    def _route(self, path: str, endpoint: Endpoint, method: str = "GET") -> Route:
        """The endpoint behind its access check; its errors as one line of JSON."""

        async def guarded(request: Request) -> Response:
            refusal = self._access.refuses(request.method, request.headers)
            if refusal is not None:
                return _plain({"error": refusal.why}, refusal.status)
            try:
                return await endpoint(request)
            except PartboxError as error:
                return _plain({"error": error_text(error, 2 * LONG)}, 400)
            except psycopg.Error as error:
                return _plain({"error": f"the database: {error_text(error, 2 * LONG)}"}, 503)

        return Route(path, guarded, methods=[method], name=path)

    async def _events(self, request: Request) -> Response:
        """Server-sent events: a frame a second."""
        if self._streams >= MOST_STREAMS:
            return _plain({"error": TOO_MANY}, 503)
        self._streams += 1
        may_act = {"may_act": self._access.holds(request.headers), "can_act": self._access.token is not None}
        return _Stream(self._stream(request, may_act), self._streamed)

    def _streamed(self) -> None:
        self._streams -= 1

    async def _stream(self, request: Request, may_act: dict[str, bool]) -> AsyncIterator[bytes]:
        subscription, first = request.query_params.get("subscription"), True
        stopping = getattr(request.state, "stopping", None) or asyncio.Event()
        with self._feed.watched():
            if not self._feed.fresh:
                await self._feed.turn(stopping)
            while not stopping.is_set():
                frame = self._feed.frame(subscription, history=first)
                first = False
                yield b"data: " + orjson.dumps(frame | may_act) + b"\n\n"
                await self._feed.turn(stopping)

    async def _unlock(self, request: Request) -> Response:
        """Confirm a token: a wrong one is refused before this answers."""
        await _body(request)
        return _plain({"may_act": True})

    async def _dead_groups(self, request: Request) -> Response:
        return await self._answer(self._operator.dead_groups, request, request_params.filters(request.query_params))

    async def _dead(self, request: Request) -> Response:
        filters = request_params.filters(request.query_params)
        after = request_params.number(request.query_params, "after")
        return await self._answer(self._operator.dead, request, filters, after)

    async def _show(self, request: Request) -> Response:
        # As text: a convertor fails at what is no record's id.
        record = request_params.number(request.path_params, "record")
        return _plain(await in_background(lambda: self._operator.show(_subscription(request), record)))

    async def _blocked(self, request: Request) -> Response:
        limit = request_params.number(request.query_params, "limit", PAGE) or PAGE
        return await self._answer(self._operator.blocked, request, limit)

    async def _answer(self, work: Callable[..., Any], request: Request, *arguments: object) -> Response:
        """The answer of `work` about the request's subscription, shared with those who ask the same meanwhile."""
        return _plain(await self._single_flight.ask(work, _subscription(request), *arguments))

    def _acting(self, name: str, act: Callable[[ActionParams], Any]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            params = await _body(request)
            try:
                result = await in_background(lambda: act(params))
            finally:
                self._single_flight.clear()
            text, within = "page: %s of %s in subscription %r: %s", params.subscription
            values = name, params.records, within, result
            log_event(log, "command", text, *values, command=f"page {name}", subscription=within)
            return _plain(result)

        return endpoint

    def _bulk(self, act: Callable[..., int]) -> Endpoint:
        """Lines of JSON: the progress, and at the end the total. A closed connection ends it between two chunks."""

        async def endpoint(request: Request) -> Response:
            params = await _body(request)
            if params.records:
                raise PartboxError("records: this order is for all that match its filters: leave them out")
            work = partial(act, **params.filters, subscription=params.subscription)
            return StreamingResponse(progress_lines(work, self._single_flight.clear), headers=DATA | LINES)

        return endpoint


class _Stream(StreamingResponse):
    """Server-sent events; `ended` is called once, also if nothing was sent."""

    def __init__(self, content: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        super().__init__(content, headers=DATA | EVENTS)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


def _file_routes() -> list[Route]:
    """A route for each file of the package; the page itself is at `/`. They hold no data, so everybody may have them.

    Nothing is built, nothing comes from anywhere else.
    """
    found = (each for each in files("partbox.dashboard").joinpath("static").iterdir())
    return [_file_route(each.name, each.read_bytes()) for each in found if each.name.rpartition(".")[2] in TYPES]


def _file_route(name: str, content: bytes) -> Route:
    async def answer(_: Request) -> Response:
        kind = TYPES[name.rpartition(".")[2]]
        return Response(content, headers=HEADERS | {"content-type": kind, "cache-control": "no-cache"})

    return Route("/" if name == "index.html" else f"/{name}", answer, methods=["GET"], name=name)


async def _body(request: Request) -> ActionParams:
    """The body of a POST, which must be JSON: no form of another site can send that."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise PartboxError("the request must be of content type application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > request_params.LARGEST_BODY:
            raise PartboxError(f"the request is larger than {request_params.LARGEST_BODY} bytes")
    return request_params.action_params(bytes(body))


def _subscription(request: Request) -> str:
    return request.query_params.get("subscription", "default")


def _plain(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, headers=DATA | {"content-type": "application/json"})
