"""A real PostgreSQL for every test: one server per test process, a database cloned from a template per test."""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from servers import OwnServer, binaries, migrated, new_database, new_folder, new_server
from waiting import eventually

from partbox.db.embedded import Server
from partbox.interceptors import hooks
from partbox.observe import telling

TEMPLATE = "partbox_template"
PATIENCE = 5.0
"""Seconds that what a test started may take to end after it."""
MEMORY = Path("/dev/shm")
ROOM = 8 * 2**30
"""Free bytes of memory from which on it holds the files of a run."""
SERVERS = {"server", "own_server"}
"""The fixtures that start the server of PARTBOX_TEST_BINARIES: every test that uses it has one of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--server-only",
        action="store_true",
        help="only the tests that use the server; the others say the same whatever its version is",
    )


def pytest_configure() -> None:
    """Keep temporary files, the servers' data above all, in memory: on a disc, cloning takes most of a test's time."""
    if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None


def pytest_report_header(config: pytest.Config) -> list[str]:
    version = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, text=True, check=True)
    which = "only those that use the server" if config.getoption("--server-only") else "all"
    return [
        f"server: {version.stdout.strip()} in {binaries()}",
        f"tests: {which}; their files are in {tempfile.gettempdir()}",
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--server-only"):
        config.hook.pytest_deselected(items=[item for item in items if not _uses_server(item)])
        items[:] = filter(_uses_server, items)


def _uses_server(item: pytest.Item) -> bool:
    return not SERVERS.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of this test process. Leave it running: a test that kills one takes `own_server`."""
    with new_server() as server:
        yield server


@pytest.fixture(scope="session")
def template(server: Server) -> str:
    """The name of a database with the schema, to be cloned."""
    migrated(server.dsn, TEMPLATE)
    return TEMPLATE


@pytest.fixture
def dsn(server: Server, template: str) -> Iterator[str]:
    """The DSN of a fresh database with the schema."""
    with new_database(server.dsn, template) as dsn:
        yield dsn


@pytest.fixture
def empty_dsn(server: Server) -> Iterator[str]:
    """The DSN of a fresh database with nothing in it."""
    with new_database(server.dsn, "template1") as dsn:
        yield dsn


@pytest.fixture
def conn(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """An autocommit connection to the test's database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        yield conn


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    with new_server() as server:
        yield OwnServer(server, migrated(server.dsn, "partbox"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A path for an embedded server's data, which does not exist yet."""
    with new_folder() as folder:
        yield folder


@pytest.fixture(autouse=True)
def _no_server_unasked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that starts the server without a fixture of SERVERS: `--server-only` would leave it out."""
    # Not by the fixture `monkeypatch`: a test's fake clock would then outlive the test, up to `_nothing_left_behind`.
    with pytest.MonkeyPatch.context() as patch:
        if not _uses_server(request.node):
            patch.setenv("PARTBOX_TEST_BINARIES", f"/this-test-takes-none-of/{'/'.join(sorted(SERVERS))}")
        yield


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> None:
    """What one test made partbox say often is not held back in the next."""
    hooks.flood.clear()
    telling.flood.clear()


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Fails a test that leaves child processes or non-daemon threads behind."""
    before = _offspring()
    yield

    def all_gone() -> bool:
        assert not (left := _offspring() - before), f"left behind: {sorted(left)}"
        return True

    eventually(all_gone, timeout=PATIENCE)


def _offspring() -> set[str]:
    threads = {f"thread {thread.name} ({thread.ident})" for thread in threading.enumerate() if not thread.daemon}
    return threads | {f"process {child.pid}" for child in psutil.Process().children() if not _is_tracker(child)}


def _is_tracker(child: psutil.Process) -> bool:
    """Whether it is the resource tracker, which spawning starts and which ends with us."""
    try:
        return "resource_tracker" in " ".join(child.cmdline())
    except psutil.Error:
        return False
