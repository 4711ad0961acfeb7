"""The page in applications, as docs/dashboard.md mounts it."""

import os
import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict
from test_programs import blocks

PROXY, BESIDE_DJANGO = blocks("docs/dashboard.md")
DEAD = "/outbox/api/dead"

DJANGO = """
import asyncio, os, httpx
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"],
                           "USER": os.environ["PGUSER"], "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"]}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions"],
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF="urls", ALLOWED_HOSTS=["*"], USE_TZ=True, SECRET_KEY="a secret",
)
from asgi import application
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
call_command("migrate", verbosity=0)
users = get_user_model().objects
people = {
    "guest": users.create_user("guest"), "clerk": users.create_user("clerk", is_staff=True),
    "ada": users.create_superuser("ada", password="x"),
}
cookies = {}
for name, user in people.items():
    browser = Client()
    browser.force_login(user)
    cookies[name] = browser.cookies["sessionid"].value

async def ask():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(application), base_url="http://shop") as client:
        print("home", (await client.get("/")).text)
        for name, session in [*cookies.items(), ("nobody", "made-up")]:
            headers = {"cookie": f"sessionid={session}"}
            look = await client.get("/outbox/api/dead", headers=headers)
            act = await client.post("/outbox/api/subscription/pause", headers=headers, json={})
            print(name, look.status_code, act.status_code)

asyncio.run(ask())
"""


async def test_the_header_of_a_proxy_is_the_identity_and_requests_past_the_proxy_are_refused(dsn, monkeypatch):
    monkeypatch.setenv("PARTBOX_DSN", dsn)
    monkeypatch.setenv("PROXY_SECRET", "of the proxy")
    program = SimpleNamespace()
    exec(PROXY, program.__dict__)
    proxied = {"x-proxy-secret": "of the proxy"}
    ada, bob = ({"x-auth-request-email": f"{name}@example.org"} for name in ("ada", "bob"))
    transport = httpx.ASGITransport(program.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        for headers, may_look, may_act in (
            (ada, 403, 403),
            (ada | {"x-proxy-secret": "guessed"}, 403, 403),
            (proxied, 403, 403),
            (proxied | bob, 200, 403),
            (proxied | ada, 200, 200),
        ):
            look = await client.get(DEAD, headers=headers)
            act = await client.post("/outbox/api/subscription/pause", headers=headers, json={})
            assert (look.status_code, act.status_code) == (may_look, may_act), headers


@pytest.mark.thorough
def test_sessions_and_permissions_of_django_decide_about_a_dashboard_beside_it(dsn, tmp_path):
    (tmp_path / "asgi.py").write_text(BESIDE_DJANGO)
    urls = "from django.http import HttpResponse\nfrom django.urls import path\n"
    (tmp_path / "urls.py").write_text(f"{urls}urlpatterns = [path('', lambda request: HttpResponse('the shop'))]\n")
    (tmp_path / "program.py").write_text(DJANGO)
    place = conninfo_to_dict(dsn)
    of_libpq = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGDATABASE": "dbname"}
    environment = os.environ | {name: str(place[key]) for name, key in of_libpq.items()} | {"PARTBOX_DSN": dsn}
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines() == [
        "home the shop",
        "guest 403 403",
        "clerk 200 403",
        "ada 200 200",
        "nobody 403 403",
    ], ended.stderr
