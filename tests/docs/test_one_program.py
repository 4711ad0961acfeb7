"""The application of the page on frameworks in its three places: in its server, as `partbox worker`, and in pytest."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from one_program import AT_ONCE, CACHE, FILES, KEEP_ALIVE, PAGE, PARTBOX, Place, lines, said
from run_size import examples
from waiting import eventually

MANY = examples(1_000)
PROGRAM = FILES["fastapi_worker.py"]
(TABLE,) = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

SERVING = f"""
import asyncio, gc, socket, sys
import psycopg, uvicorn
from fastapi_worker import app, outbox

async def serve():
    with socket.create_server(("127.0.0.1", 0)) as place:
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_keep_alive={KEEP_ALIVE}))
        serving = asyncio.create_task(server.serve(sockets=[place]))
        address = "http://127.0.0.1:%d" % place.getsockname()[1]
        asking = await asyncio.create_subprocess_exec(sys.executable, "asking.py", address, "{MANY}", "{AT_ONCE}")
        assert await asking.wait() == 0
        while outbox.settings.enabled and await asyncio.to_thread(lambda: outbox.stats.cluster("default").pending):
            await asyncio.sleep(0.05)
        server.should_exit = True
        await serving

OTHERS = "select pid, query from pg_stat_activity where datname = current_database()"
with psycopg.connect(autocommit=True) as conn:
    before = dict(conn.execute(OTHERS).fetchall())
    asyncio.run(serve())
    gc.collect()
    print("still connected:", [query for pid, query in conn.execute(OTHERS) if pid not in before])
"""
TEST = f"""
import fastapi_worker
import httpx


async def test_orders_are_confirmed(partbox_kit):
    app = fastapi_worker.app
    transport = httpx.ASGITransport(app)
    async with fastapi_worker.lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        for number in range({MANY}):
            assert (await client.post(f"/orders?reference=A-{{number}}")).status_code == 201
    (await partbox_kit.drain_async()).assert_done()
"""
CONFTEST = """
import os
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

@pytest.fixture(scope="session")
def partbox_prepare():
    def prepare(dsn):
        with psycopg.connect(dsn) as conn:
            conn.execute(os.environ["TABLE"])
    return prepare

@pytest.fixture(autouse=True)
def database(partbox_dsn, monkeypatch):
    monkeypatch.setenv("PGDATABASE", conninfo_to_dict(partbox_dsn)["dbname"])
"""
INI = """
[pytest]
pythonpath = .
partbox_outbox = fastapi_worker:outbox
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


class Mails(ThreadingHTTPServer):
    """A mail service, which counts what it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Mailbox)
        self.sent = Counter[str]()
        self.connected: set[Any] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Mailbox(BaseHTTPRequestHandler):
    server: Mails
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.server.connected.add(self)

    def finish(self) -> None:
        super().finish()
        self.server.connected.discard(self)

    def do_POST(self) -> None:
        self.server.sent[self.rfile.read(int(self.headers["content-length"])).decode()] += 1
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """It says nothing."""


@pytest.fixture
def mails() -> Iterator[Mails]:
    with Mails() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(params=["asyncpg", "psycopg"])
def place(tmp_path: Path, dsn: str, mails: Mails, request: pytest.FixtureRequest) -> Place:
    """A folder with the program over this driver."""
    place = Place(tmp_path, dsn, MAILS_URL=mails.url, TABLE=TABLE, PARTBOX_TEST_DSN=dsn)
    place.write("fastapi_worker.py", PROGRAM.replace("postgresql+psycopg://", f"postgresql+{request.param}://"))
    for name, text in {"conftest.py": CONFTEST, "pytest.ini": INI, "serving.py": SERVING}.items():
        place.write(name, text)
    return place


@pytest.fixture
def orders(conn: psycopg.Connection[Any]) -> Iterator[Callable[[], list[Any]]]:
    """How many orders there are of each total."""
    conn.execute(TABLE)
    yield lambda: conn.execute("select total, count(*) from orders group by total").fetchall()
    conn.execute("drop table orders")


def once_each(mails: Mails) -> bool:
    """Each order is mailed once, and nobody is connected any more."""
    eventually(lambda: not mails.connected)
    return mails.sent == Counter(f"A-{number}" for number in range(MANY))


def test_the_program_has_under_60_lines() -> None:
    assert lines(PROGRAM) < 60


def test_the_program_is_well_typed(tmp_path: Path) -> None:
    """By mypy in strict mode, and by pyright."""
    (tmp_path / "fastapi_worker.py").write_text(PROGRAM, encoding="utf-8")
    venv = Path(sys.prefix)
    config = {"typeCheckingMode": "standard", "venvPath": str(venv.parent), "venv": venv.name}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config))
    strict = ["mypy", "--strict", "--config-file=", f"--cache-dir={CACHE}", "fastapi_worker.py"]
    assert said(tmp_path, *strict) == "Success: no issues found in 1 source file\n"
    told = map(str.strip, said(tmp_path, "pyright").splitlines())  # an older one tells of newer ones, too
    assert "0 errors, 0 warnings, 0 informations" in told


@pytest.mark.thorough
def test_handlers_in_the_server_of_the_program_run_in_the_event_loop_of_the_requests(place, mails, orders):
    assert place.run("serving.py") == "still connected: []\n"
    assert orders() == [(84, MANY)]
    assert once_each(mails)


@pytest.mark.thorough
def test_handlers_beside_the_server_of_the_program_run_in_partbox_worker(place, mails, orders):
    assert place.run("serving.py", PARTBOX_ENABLED="false") == "still connected: []\n"
    assert orders() == [(42, MANY)]
    place.run(PARTBOX, "worker", "fastapi_worker:outbox", "--until-empty", "--processes", "2")
    assert orders() == [(84, MANY)]
    assert once_each(mails)


@pytest.mark.thorough
def test_handlers_of_the_program_in_pytest_run_in_the_event_loop_of_the_test(place, mails):
    place.write("test_fastapi_worker.py", TEST)
    assert "1 passed" in place.run("-m", "pytest", "-p", "no:cacheprovider", PARTBOX_ENABLED="false")
    assert once_each(mails)
