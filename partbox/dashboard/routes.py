"""The routes of the page: its files, the stream of frames, lists of trouble, actions.

All paths are relative to where they are mounted. Data needs the right to look, actions (POST) the token; see access.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import psycopg
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from partbox.dashboard import files, orders
from partbox.dashboard.access import Access
from partbox.dashboard.aside import aside
from partbox.dashboard.bulk import Bulk
from partbox.dashboard.desk import PAGE, Desk
from partbox.dashboard.feed import Feed
from partbox.dashboard.orders import Order
from partbox.dashboard.shared import Shared
from partbox.dashboard.texts import LONG, cut
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.text.secrets import masked

log = logging.getLogger("partbox.http")

Endpoint = Callable[[Request], Awaitable[Response]]
Act = Callable[[Order], Any]

MOST_STREAMS = 50
"""Simultaneous viewers. A stream is a connection for as long as its page is open, and probes need some, too."""
TOO_MANY = f"{MOST_STREAMS} pages are watching already: close one, and this one will follow"

EVENTS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
LINES = {"content-type": "application/x-ndjson; charset=utf-8", "x-accel-buffering": "no"}
DATA = files.HEADERS | {"cache-control": "no-store"}


class PageRoutes:
    """Makes the routes, guarded by `access`."""

    def __init__(self, feed: Feed, desk: Desk, access: Access) -> None:
        self._feed = feed
        self._desk = desk
        self._access = access
        self._shared = Shared()
        self._streams = 0

    def routes(self) -> list[BaseRoute]:
        desk = self._desk
        actions: dict[str, Act] = {
            "dead/replay": lambda order: desk.replay(order.subscription, order.records),
            "dead/discard": lambda order: desk.discard(order.subscription, order.records),
            "blocked/retry": lambda order: desk.retry(order.subscription, order.records),
            "blocked/skip": lambda order: desk.skip(order.subscription, order.records, order.reason),
            "subscription/pause": lambda order: desk.pause(order.subscription),
            "subscription/resume": lambda order: desk.resume(order.subscription),
        }
        return [
            *files.routes(),
            self._route("/events", self._events),
            self._route("/api/unlock", self._unlock, "POST"),
            self._route("/api/dead", self._dead),
            self._route("/api/dead-groups", self._dead_groups),
            self._route("/api/dead/{record}", self._show),
            self._route("/api/blocked", self._blocked),
            *(self._route(f"/api/{path}", self._acting(path, act), "POST") for path, act in actions.items()),
            self._route("/api/dead/replay-all", self._bulk(desk.replay_all), "POST"),
            self._route("/api/dead/discard-all", self._bulk(desk.discard_all), "POST"),
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
                return _plain({"error": cut(masked(str(error)), 2 * LONG)}, 400)
            except psycopg.Error as error:
                said = cut(masked(str(error).partition("\n")[0]), 2 * LONG)
                return _plain({"error": f"the database: {said}"}, 503)

        return Route(path, guarded, methods=[method], name=path)

    async def _events(self, request: Request) -> Response:
        """Server-sent events: a frame a second."""
        if self._streams >= MOST_STREAMS:
            return _plain({"error": TOO_MANY}, 503)
        self._streams += 1
        may_act = {"may_act": self._access.holds(request.headers), "can_act": self._access.can_act}
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
        await _order(request)
        return _plain({"may_act": True})

    async def _dead_groups(self, request: Request) -> Response:
        subscription, filters = (
            request.query_params.get("subscription", "default"),
            orders.filters(request.query_params),
        )
        question = ("dead-groups", subscription, tuple(filters.items()))
        return _plain(await self._shared.ask(question, lambda: self._desk.dead_groups(subscription, filters)))

    async def _dead(self, request: Request) -> Response:
        query = request.query_params
        subscription, filters = query.get("subscription", "default"), orders.filters(query)
        after = orders.number(query, "after")
        question = ("dead", subscription, tuple(filters.items()), after)
        return _plain(await self._shared.ask(question, lambda: self._desk.dead(subscription, filters, after)))

    async def _show(self, request: Request) -> Response:
        subscription = request.query_params.get("subscription", "default")
        record = orders.number(request.path_params, "record")  # as text: a convertor fails at what is no record's id
        return _plain(await aside(lambda: self._desk.show(subscription, record)))

    async def _blocked(self, request: Request) -> Response:
        query = request.query_params
        subscription, limit = query.get("subscription", "default"), orders.number(query, "limit", PAGE) or PAGE
        question = ("blocked", subscription, limit)
        return _plain(await self._shared.ask(question, lambda: self._desk.blocked(subscription, limit)))

    def _acting(self, name: str, act: Act) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            order = await _order(request)
            try:
                result = await aside(lambda: act(order))
            finally:
                self._shared.forget()
            text, within = "page: %s of %s in subscription %r: %s", order.subscription
            log_event(
                log, "command", text, name, order.records, within, result, command=f"page {name}", subscription=within
            )
            return _plain(result)

        return endpoint

    def _bulk(self, act: Callable[..., int]) -> Endpoint:
        """Lines of JSON: the progress, and at the end the total. A closed connection ends it between two chunks."""

        async def endpoint(request: Request) -> Response:
            order = await _order(request)
            if order.records:
                raise PartboxError("records: this order is for all that match its filters: leave them out")
            bulk = Bulk(lambda progress: act(order.subscription, order.filters, progress), self._shared.forget)
            return StreamingResponse(bulk.lines(), headers=DATA | LINES)

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


async def _order(request: Request) -> Order:
    """The body of a POST, which must be JSON: no form of another site can send that."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise PartboxError("the request must be of content type application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > orders.LARGEST_ORDER:
            raise PartboxError(f"the request is larger than {orders.LARGEST_ORDER} bytes")
    return orders.order(bytes(body))


def _plain(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, headers=DATA | {"content-type": "application/json"})
