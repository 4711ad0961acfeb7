"""Routes of the page, relative to the mount point: files, the stream of frames, the lists of records, and the actions.
A guard judges each request for data and each action (a POST)."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from importlib.resources import files
from typing import Any, cast

import orjson
import psycopg
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from partbox.dashboard import request_params
from partbox.dashboard.access import ACTIONS, Action, Guard, Refusal
from partbox.dashboard.background_calls import SingleFlight, run_in_background, stream_progress
from partbox.dashboard.feed import Feed
from partbox.dashboard.operator_actions import PAGE, OperatorActions
from partbox.dashboard.page_text import LONG, cut_text, format_error
from partbox.dashboard.record_views import RecordViews
from partbox.dashboard.request_params import ActionParams
from partbox.db.operator.actions import acting_as
from partbox.errors import PartboxError
from partbox.observe.logs.log_event import log_event
from partbox.operations.arguments import MAX_BIGINT

log = logging.getLogger("partbox.http")

Endpoint = Callable[[Request], Awaitable[Response]]

READING = ("look", "payload")
# Seconds until a stream ends. The page opens the next one at once, so withdrawn rights are gone by then, and an
# application that waits for its last response before it ends does not wait longer.
STREAM_SECONDS = 15.0
MOST_LAGS = 20  # subscriptions
# Simultaneous viewers. A stream holds a connection as long as its page is open, and probes need some too.
MOST_STREAMS = 50
TOO_MANY = f"{MOST_STREAMS} pages are open already: close one, and this page will connect"

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

# Scripts and styles come only from partbox's files, data goes nowhere else, and no site may frame the page.
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
FILE = HEADERS | {"cache-control": "no-cache"}


class PageRoutes:
    def __init__(self, feed: Feed, operator: OperatorActions, records: RecordViews, guard: Guard) -> None:
        self._feed = feed
        self._records = records
        self._operator = operator
        self._guard = guard
        self._single_flight = SingleFlight()
        self._streams = 0

    def build_routes(self) -> list[BaseRoute]:
        acting = {path: self._build_action_endpoint(path, act) for path, act in self._operator.actions.items()}
        acting |= {path: self._build_bulk_endpoint(act) for path, act in self._operator.bulk_actions.items()}
        return [
            *self._list_file_routes(),
            self._build_route("/events", self._answer_events),
            self._build_route("/api/unlock", self._answer_unlock, "retry"),
            self._build_route("/api/lags", self._answer_lags),
            self._build_route("/api/dead", self._answer_dead),
            self._build_route("/api/dead-groups", self._answer_dead_groups),
            self._build_route("/api/find", self._answer_find),
            self._build_route("/api/records/{record}", self._answer_show),
            self._build_route("/api/records/{record}/payload", self._answer_payload, "payload"),
            self._build_route("/api/actions", self._answer_done),
            self._build_route("/api/blocked", self._answer_blocked),
            *(self._build_route(f"/api/{path}", endpoint, _find_action(path)) for path, endpoint in acting.items()),
        ]

    def _build_route(self, path: str, endpoint: Endpoint, action: Action = "look") -> Route:
        # The endpoint runs only if the guard allows the action. Errors are answered with one line of JSON.

        async def guarded(request: Request) -> Response:
            judgement = await self._guard.judge_request(request, action)
            if isinstance(judgement, Refusal):
                return _build_response({"error": judgement.reason}, judgement.status)
            request.state.identity = judgement
            try:
                return await endpoint(request)
            except PartboxError as error:
                return _build_response({"error": format_error(error, 2 * LONG)}, 400)
            except psycopg.Error as error:
                return _build_response({"error": f"the database: {format_error(error, 2 * LONG)}"}, 503)

        return Route(path, guarded, methods=["GET" if action in READING else "POST"], name=path)

    def _list_file_routes(self) -> Iterator[Route]:
        # The page itself is at `/`. The files hold no data and need no build.
        for each in files("partbox.dashboard").joinpath("static").iterdir():
            if (kind := TYPES.get(each.name.rpartition(".")[2])) is not None:
                answer = Response(each.read_bytes(), headers=FILE | {"content-type": kind})
                path = "/" if each.name == "index.html" else f"/{each.name}"
                yield Route(
                    path, self._build_file_endpoint(answer, guarded=path == "/"), methods=["GET"], name=each.name
                )

    def _build_file_endpoint(self, answer: Response, *, guarded: bool) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            judgement = await self._guard.judge_request(request, "look") if guarded and self._guard.guards_all else ""
            return (
                PlainTextResponse(judgement.reason, judgement.status, DATA)
                if isinstance(judgement, Refusal)
                else answer
            )

        return endpoint

    async def _answer_events(self, request: Request) -> Response:
        # The browser gets server-sent events, one frame a second, for `STREAM_SECONDS` seconds.
        if self._streams >= MOST_STREAMS:
            return _build_response({"error": TOO_MANY}, 503)
        self._streams += 1
        return _EventStream(self._stream_frames(request), self._end_stream)

    def _end_stream(self) -> None:
        self._streams -= 1

    async def _find_rights(self, request: Request) -> dict[str, Any]:
        # `identity` is the name that is logged with the viewer's actions.
        may = [each for each in ACTIONS if not isinstance(await self._guard.judge_request(request, each), Refusal)]
        return {"may": may, "unlock": self._guard.has_unlock_token, "identity": cut_text(request.state.identity)}

    async def _stream_frames(self, request: Request) -> AsyncIterator[bytes]:
        subscription, first, ends = request.query_params.get("subscription"), True, time.monotonic() + STREAM_SECONDS
        rights = await self._find_rights(request)
        stopping = getattr(request.state, "stopping", None) or asyncio.Event()
        with self._feed.keep_refreshing():
            if not self._feed.is_fresh:
                await self._feed.await_refresh(stopping)
            while not stopping.is_set():
                frame = self._feed.build_frame(subscription, history=first)
                first = False
                yield b"data: " + orjson.dumps(frame | rights) + b"\n\n"
                if time.monotonic() >= ends:
                    return
                await self._feed.await_refresh(stopping)

    async def _answer_unlock(self, request: Request) -> Response:
        # The guard has refused a wrong token before.
        await _read_body(request)
        return _build_response({"unlocked": True})

    async def _answer_lags(self, request: Request) -> Response:
        found = self._feed.lags.list_worst(MOST_LAGS)
        return _build_response(
            [{"name": name, "label": cut_text(name), "now": now, "bars": bars} for name, now, bars in found]
        )

    async def _answer_dead_groups(self, request: Request) -> Response:
        return await self._respond_shared(
            self._operator.list_dead_groups, request, request_params.read_filters(request.query_params)
        )

    async def _answer_dead(self, request: Request) -> Response:
        filters = request_params.read_filters(request.query_params)
        after = request_params.parse_number(request.query_params, "after")
        return await self._respond_shared(self._operator.list_dead, request, filters, after)

    async def _answer_find(self, request: Request) -> Response:
        given = request.query_params
        filters = request_params.read_filters(given, request_params.FINDING)
        before = request_params.parse_number(given, "before")
        return _build_response(
            await run_in_background(lambda: self._records.find_records(given.get("find") or None, before, filters))
        )

    async def _answer_show(self, request: Request) -> Response:
        return _build_response(await run_in_background(partial(self._records.show_record, _parse_record_id(request))))

    async def _answer_payload(self, request: Request) -> Response:
        found = await run_in_background(partial(self._records.read_payload, record := _parse_record_id(request)))
        text = "page: payload of record %d shown to %s"
        log_event(log, "command", text, record, cut_text(request.state.identity), command="page payload")
        return _build_response(found)

    async def _answer_done(self, request: Request) -> Response:
        return _build_response(
            await run_in_background(partial(self._operator.list_done, request.query_params.get("subscription")))
        )

    async def _answer_blocked(self, request: Request) -> Response:
        limit = request_params.parse_number(request.query_params, "limit", PAGE) or PAGE
        return await self._respond_shared(self._operator.list_blocked, request, limit)

    async def _respond_shared(self, work: Callable[..., Any], request: Request, *arguments: object) -> Response:
        # Simultaneous equal requests share one result.
        return _build_response(await self._single_flight.share_call(work, _read_subscription(request), *arguments))

    def _build_action_endpoint(self, name: str, act: Callable[[ActionParams], Any]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            params = await _read_body(request)
            identified = acting_as(request.state.identity, reason=params.given_reason)
            try:
                result = await run_in_background(lambda: identified(act)(params))
            finally:
                self._single_flight.forget_answers()
            text, within = "page: %s of %s in subscription %r by %s: %s", params.subscription
            values = name, params.handler or params.records, within, cut_text(request.state.identity), result
            log_event(log, "command", text, *values, command=f"page {name}", subscription=within)
            return _build_response(result)

        return endpoint

    def _build_bulk_endpoint(self, act: Callable[..., int]) -> Endpoint:
        # The endpoint acts on many records, and streams progress, and the total at the end, as lines of JSON. A closed
        # connection ends the action between two chunks.

        async def endpoint(request: Request) -> Response:
            params = await _read_body(request)
            if params.records:
                raise PartboxError("records: this action is for all records that match its filters: leave records out")
            identified = acting_as(request.state.identity, reason=params.given_reason)
            work = identified(partial(act, **params.filters, subscription=params.subscription))
            return StreamingResponse(stream_progress(work, self._single_flight.forget_answers), headers=DATA | LINES)

        return endpoint


class _EventStream(StreamingResponse):
    """An HTTP response of server-sent events that calls a function exactly once when the stream ends.

    The function `ended` is called even if nothing was sent."""

    def __init__(self, content: AsyncIterator[bytes], ended: Callable[[], None]) -> None:
        super().__init__(content, headers=DATA | EVENTS)
        self._on_end = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def _find_action(path: str) -> Action:
    # A path is, for example, `dead/replay-all`. Both limit actions need the same right.
    return "limit" if path.startswith("limit/") else cast(Action, path.rpartition("/")[2].removesuffix("-all"))


async def _read_body(request: Request) -> ActionParams:
    # The body must be JSON, because no form of another site can send JSON.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise PartboxError("the request must have the content type application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > request_params.LARGEST_BODY:
            raise PartboxError(f"the request is larger than {request_params.LARGEST_BODY} bytes")
    return request_params.parse_action_params(bytes(body))


def _parse_record_id(request: Request) -> int:
    # A path converter of Starlette would fail on a wrong id.
    found = request_params.parse_number(request.path_params, "record")
    if not 0 < found <= MAX_BIGINT:
        raise PartboxError(f"record {found} is not a record id")
    return int(found)


def _read_subscription(request: Request) -> str:
    return request.query_params.get("subscription", "default")


def _build_response(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, headers=DATA | {"content-type": "application/json"})
