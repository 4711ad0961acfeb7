"""Servers and databases for tests: the embedded PostgreSQL 18, or the version PARTBOX_TEST_BINARIES names.

A server starts from a copy of data that the first one of the run has made: initdb takes a second of a processor.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.embedded import programs
from partbox.embedded.server import Server
from partbox.testing.servers import OPTIONS, ServerOriginals, copy, execute, free_path, new_folder
from partbox_lab.servers import follow

__all__ = ["OPTIONS", "OwnServer", "binaries", "execute", "free_path", "new_folder"]

TEMPLATE = "partbox_template"
"""A database with the schema, to be cloned."""
KEPT = "PARTBOX_TEST_KEPT"
"""The variable that names the folder of the data that servers are copied from, for all processes of a run."""


def binaries() -> Path:
    named = os.environ.get("PARTBOX_TEST_BINARIES")
    return Path(named) if named else programs.find_binaries()


@contextmanager
def new_server(options: Mapping[str, str] = MappingProxyType({})) -> Iterator[Server]:
    """A server with the database TEMPLATE."""
    with originals().copied(_with_template(), options) as server:
        yield server


@contextmanager
def bare_server() -> Iterator[Server]:
    """A server as initdb has made it."""
    with originals().copied(originals().bare()) as server:
        yield server


def initialise(folder: Path) -> None:
    """Make what a first start of PostgreSQL 18 would make there."""
    copy(ServerOriginals(originals().folder).bare(), folder)


def _with_template() -> Path:
    def make(folder: Path) -> None:
        server = originals().server(folder, originals().bare())
        migrated(server.start(), TEMPLATE)
        server.stop()

    return originals().kept("template", make)


@cache
def originals() -> ServerOriginals:
    """The run's data that servers are copied from; asked for before a test changes the environment."""
    return ServerOriginals(Path(os.environ[KEPT]), binaries())


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
def new_standby(server: Server, folder: Path, primary: str | None = None) -> Iterator[Path]:
    """The folder of the socket of a standby, made in `folder`, that follows a running server.

    `primary`: a conninfo by which it reaches that server; None: its DSN.
    """
    # Not what pg_basebackup writes: one of a newer version names options that the server's own library does not know.
    primary = primary or make_conninfo(server.dsn, dbname=None)
    standby = Server(folder, binaries=binaries(), options={**server.options, "primary_conninfo": primary})
    try:
        yield Path(str(conninfo_to_dict(follow(standby, server))["host"]))
    finally:
        standby.stop("immediate")


def promote(standby: Path) -> None:
    """Make a standby the primary."""
    execute(make_conninfo(host=str(standby), user="postgres", dbname="postgres"), "select pg_promote(true, 60)")


def cloned(server_dsn: str, name: str) -> str:
    """The DSN of a new database `name` on a server that has the template."""
    execute(server_dsn, "create database {} template {}", name, TEMPLATE)
    return make_conninfo(server_dsn, dbname=name)


def migrated(server_dsn: str, name: str) -> str:
    """The DSN of a new database `name`, migrated; nobody may create in `public`, as from PostgreSQL 15 on."""
    from partbox.db.schema.migrate import migrate

    execute(server_dsn, "create database {}", name)
    dsn = make_conninfo(server_dsn, dbname=name)
    execute(dsn, "revoke create on schema public from public")
    migrate(dsn)
    return dsn


@dataclass(frozen=True, slots=True)
class OwnServer:
    """A server that a test may kill, and a database with the schema on it."""

    server: Server
    dsn: str
