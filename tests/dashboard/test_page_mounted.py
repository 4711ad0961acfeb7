"""The page in somebody's application: at any path, behind the application's own rights."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from importlib import import_module
from typing import Any

import fastapi
import pytest
from django.core.asgi import get_asgi_application
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path
from django_runs import configure_django
from live import Served
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from partbox import Outbox
from partbox.dashboard import MountedPage

ADA, EVE = {"x-user": "ada"}, {"x-user": "eve"}


def may(request: Request, action: str) -> str | None:
    """Ada may do everything, Bob may look, nobody else anything."""
    user = request.headers.get("x-user")
    return user if user == "ada" or (user == "bob" and action == "look") else None


async def may_later(request: Request, action: str) -> str | None:
    await asyncio.sleep(0)
    return may(request, action)


def home(request: Any) -> PlainTextResponse:
    return PlainTextResponse("the shop")


def in_starlette(page: MountedPage, _: ExitStack) -> Any:
    app = Starlette(routes=[Route("/", home)])
    app.mount("/outbox", page)
    return app


def in_fastapi(page: MountedPage, _: ExitStack) -> Any:
    app = fastapi.FastAPI()
    app.get("/")(lambda: fastapi.Response("the shop"))
    app.mount("/outbox", page)
    return app


def beside_django(page: MountedPage, stack: ExitStack) -> Any:
    configure_django()
    stack.enter_context(override_settings(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__))
    return Starlette(routes=[Mount("/outbox", page), Mount("/", get_asgi_application())])


urlpatterns = [path("", lambda request: HttpResponse("the shop"))]


def by_hand(page: MountedPage, _: ExitStack) -> Any:
    """An application without a framework, which leaves the whole path in its place."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].startswith("/outbox"):
            await page(scope | {"root_path": "/outbox"}, receive, send)
        else:
            await home(None)(scope, receive, send)

    return app


@pytest.fixture
def mounted(dsn: str) -> Iterator[Callable[..., Served]]:
    """Serves an application in which the page is mounted at `/outbox`."""
    with ExitStack() as stack:

        def mount(app: Callable[[MountedPage, ExitStack], Any] = in_starlette, may: Callable[..., Any] = may) -> Served:
            page = stack.enter_context(closing(Outbox(dsn).page(may=may)))
            return stack.enter_context(closing(Served(app(page, stack))))

        yield mount


@pytest.mark.parametrize("app", [in_starlette, in_fastapi, beside_django, by_hand])
def test_the_page_is_served_below_its_path_and_the_application_keeps_its_own_routes(mounted, plant, app):
    record = plant.park("7")
    served = mounted(app)
    assert served.get("/").body == b"the shop"
    if app is not beside_django:  # there the rest is Django's
        bare = served.get("/outbox?subscription=default", ADA)
        assert (bare.status, bare.headers["location"].partition("/outbox")[2]) == (307, "/?subscription=default")
    page = served.get("/outbox/", ADA)
    assert (page.status, page.body.count(b"<script")) == (200, 1)
    assert served.get("/outbox/main.js").status == 200
    (frame,) = served.frames(1, ADA, at="/outbox")
    assert (frame["identity"], frame["unlock"], frame["subscription"]["name"]) == ("ada", None, "default")
    assert served.get("/outbox/api/dead", ADA).plain["count"] == 1
    assert served.post("/outbox/api/dead/replay", ADA, token=None, records=[record]).plain["done"] == 1
    assert plant.states() == {record: "ready"}


@pytest.mark.parametrize("judge", [may, may_later])
def test_the_application_says_who_may_look_and_who_may_act(mounted, plant, caplog, judge):
    caplog.set_level(logging.INFO, "partbox.http")
    record = plant.park("7")
    served = mounted(may=judge)
    one = f"api/records/{record}"
    lists = ("api/dead", "api/dead-groups", "api/blocked", "api/find?find=7", "api/actions", "api/lags")
    for data in ("", "events", *lists, one, f"{one}/payload"):
        assert served.get(f"/outbox/{data}").status == 403
        assert served.get(f"/outbox/{data}", EVE).status == 403
    (frame,) = served.frames(1, {"x-user": "bob"}, at="/outbox")
    assert (frame["may"], frame["identity"]) == (["look"], "bob")
    for who in ({}, EVE, {"x-user": "bob"}, {"authorization": "Bearer x"}):
        answer = served.post("/outbox/api/dead/replay", who, token=None, records=[record])
        assert (answer.status, "you may not replay here" in answer.plain["error"]) == (403, True)
    assert plant.states() == {record: "dead"}
    assert served.post("/outbox/api/dead/discard", ADA, token=None, records=[record]).plain["done"] == 1
    assert f"page: dead/discard of [{record}] in subscription 'default' by ada" in caplog.text


def test_actions_on_the_page_are_recorded_with_the_user_of_the_application(mounted, plant):
    one, *_ = (plant.park(key) for key in "789")
    served = mounted()
    served.post("/outbox/api/dead/discard", ADA, token=None, records=[one])
    assert b'"finished":2' in served.post("/outbox/api/dead/replay-all", ADA, token=None).body
    acts = [(act.action, act.count, act.who.partition(" as ")[0]) for act in plant.outbox.actions.list()]
    assert acts == [("dead replay", 2, "ada"), ("dead discard", 1, "ada")]


@pytest.mark.parametrize("judged", [None, False, "", 0])
def test_an_authorization_result_that_names_no_user_is_a_refusal(mounted, judged):
    assert mounted(may=lambda request, action: judged).get("/outbox/api/dead").status == 403


def test_requests_from_another_site_cannot_use_a_cookie_but_its_links_still_open_the_page(mounted, plant):
    record = plant.park("7")
    served = mounted(may=lambda request, action: request.cookies.get("user"))
    cookie = {"cookie": "user=ada"}
    for foreign in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
    ):
        answer = served.post("/outbox/api/dead/replay", cookie | foreign, token=None, records=[record])
        assert (answer.status, plant.states()) == (403, {record: "dead"})
    form = cookie | {"content-type": "text/plain", "sec-fetch-site": "none"}
    assert served.post("/outbox/api/dead/replay", form, token=None, records=[record]).status == 400
    assert plant.states() == {record: "dead"}
    assert served.get("/outbox/api/dead", cookie | {"sec-fetch-site": "cross-site"}).status == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    answer = served.get("/outbox/", cookie | link)
    assert (answer.status, answer.headers["x-frame-options"]) == (200, "DENY")


def test_the_application_may_redirect_to_its_own_login(mounted):
    def sign_in(request: Request, action: str) -> Awaitable[str]:
        raise HTTPException(303, headers={"location": "/login"})

    answer = mounted(may=sign_in).get("/outbox/")
    assert (answer.status, answer.headers["location"]) == (303, "/login")


def test_rights_that_are_taken_away_end_the_view(mounted, monkeypatch):
    monkeypatch.setattr(import_module("partbox.dashboard.routes"), "STREAM_SECONDS", 0.0)
    people = ["ada"]
    served = mounted(may=lambda request, action: people[0] if people else None)
    whole = served.get("/outbox/events")  # for it ends by itself
    assert (whole.status, whole.body.count(b"data: ")) == (200, 1)
    people.clear()
    assert served.get("/outbox/events").status == 403
