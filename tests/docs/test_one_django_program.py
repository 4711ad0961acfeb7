"""The Django program of the page on frameworks in its three places: in its server, beside it, and in a TestCase."""

import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from one_program import AT_ONCE, CACHE, FILES, KEEP_ALIVE, Place, lines, said
from run_size import examples

MANY = examples(1_000)
PROGRAM = {name: text for name, text in FILES.items() if name == "site_settings.py" or name.startswith("shop/")}
DJANGO_ADMIN = str(Path(sys.executable).with_name("django-admin"))
ASKED = f"""
    asked = subprocess.run([sys.executable, "asking.py", address, "{MANY}", "{AT_ONCE}"])
    assert asked.returncode == 0
    while outbox().settings.enabled and outbox().stats.cluster("default").pending:
        time.sleep(0.05)  # between two looks: no signal comes from the embedded worker of another program
"""
SERVERS = {
    "asgi": f"""
import socket, subprocess, sys, threading, time
import uvicorn
from shop.server import application
from partbox.django import outbox

with socket.create_server(("127.0.0.1", 0)) as place:
    config = uvicorn.Config(application, lifespan="off", log_level="error", timeout_keep_alive={KEEP_ALIVE})
    server = uvicorn.Server(config)
    serving = threading.Thread(target=server.run, args=([place],), daemon=True)
    serving.start()
    address = "http://127.0.0.1:%d" % place.getsockname()[1]{ASKED}
    server.should_exit = True
    serving.join()
""",
    "wsgi": f"""
import socketserver, subprocess, sys, threading, time
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from shop.server import application
from partbox.django import outbox

class Server(socketserver.ThreadingMixIn, WSGIServer):
    request_queue_size = 64

class Quiet(WSGIRequestHandler):
    def log_message(self, *_): ...

with Server(("127.0.0.1", 0), Quiet) as server:
    server.set_app(application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = "http://127.0.0.1:%d" % server.server_port{ASKED}
    server.shutdown()
""",
}


@pytest.fixture
def place(tmp_path: Path, dsn: str) -> Place:
    """A folder with the program."""
    place = Place(tmp_path, dsn, SECRET_KEY="a secret", DJANGO_SETTINGS_MODULE="site_settings", PYTHONPATH=".")
    for name, text in PROGRAM.items():
        place.write(name, text)
    return place


@pytest.fixture(params=SERVERS)
def serving(place: Place, request: pytest.FixtureRequest) -> str:
    """The program with this kind of server, which serves many requests and ends."""
    place.write("serving.py", SERVERS[request.param])
    text = PROGRAM["shop/server.py"].replace("asgi", request.param)
    place.write("shop/server.py", text)
    place.run(DJANGO_ADMIN, "migrate", "--run-syncdb")
    return "serving.py"


def orders(conn: psycopg.Connection[Any]) -> list[Any]:
    return conn.execute("select total, count(*) from shop_order group by total").fetchall()


def test_the_program_has_under_60_lines() -> None:
    assert lines(*(text for name, text in PROGRAM.items() if name != "shop/tests.py")) < 60


def test_the_program_is_well_typed(place: Place) -> None:
    """As far as Django is, which has no types of its own."""
    lax = [
        "--explicit-package-bases",
        "--ignore-missing-imports",
        "--allow-subclassing-any",
        "--allow-untyped-decorators",
    ]
    strict = ["mypy", "--strict", *lax, "--config-file=", f"--cache-dir={CACHE}", "site_settings.py", "shop"]
    assert said(place.folder, *strict) == f"Success: no issues found in {len(PROGRAM)} source files\n"


@pytest.mark.thorough
def test_handlers_in_the_server_of_the_program_write_models_once(place, serving, conn):
    place.run(serving)
    assert orders(conn) == [(84, MANY)]


@pytest.mark.thorough
@pytest.mark.parametrize("serving", ["asgi"], indirect=True)
def test_a_django_command_beside_the_server_of_the_program_delivers(place, serving, conn):
    place.run(serving, PARTBOX_ENABLED="false")
    assert orders(conn) == [(42, MANY)]
    place.run(DJANGO_ADMIN, "partbox_worker", "--until-empty", "--processes", "2")
    assert orders(conn) == [(84, MANY)]


@pytest.mark.thorough
def test_handlers_in_a_test_case_write_into_its_transaction(place):
    """The test of the page, with as many orders."""
    one = 'self.assertEqual(self.client.post("/orders?reference=A-1").status_code, 201)'
    each = one.replace('"/orders?reference=A-1"', 'f"/orders?reference=A-{number}"')
    test = PROGRAM["shop/tests.py"].replace(one, f"for number in range({MANY}):\n            {each}")
    place.write("shop/tests.py", test.replace("[84]", f"[84] * {MANY}"))
    assert test.count("A-{number}") == 1
    place.run(DJANGO_ADMIN, "test", "shop")
