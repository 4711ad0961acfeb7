"""Where a run takes place: a folder, and a schema of its own in an embedded database or in a user's."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from partbox.chaos.faults import LEASE
from partbox.db.connect import resolve
from partbox.db.embedded import Server
from partbox.db.migrate import migrate
from partbox.db.sql import query
from partbox.demo.stage import new_folder
from partbox.errors import SettingsError
from partbox.rules.dsn import parts

OPTIONS: Final = {"fsync": "off", "max_connections": "200", "max_prepared_transactions": "20"}
CONNECT_TIMEOUT: Final = 10  # seconds
QUIET = 3 * LEASE  # seconds without a heartbeat after which a schema of ours is nobody's


@dataclass(slots=True)
class Place:
    """`server` is None where the database is a user's. The folder is removed at the end unless `keep` is set."""

    dsn: str
    schema: str
    folder: Path
    server: Server | None
    keep: bool

    def connect(self, role: str) -> psycopg.Connection[Any]:
        """An autocommit connection, `role` in pg_stat_activity."""
        dsn = make_conninfo(self.dsn, application_name=self.named(role))
        return psycopg.connect(dsn, autocommit=True, prepare_threshold=None)

    def named(self, role: str) -> str:
        """What sessions of this run, and of no other, call themselves."""
        return f"{self.folder.name} {role}"


@contextmanager
def place(dsn: str | None, schema: str, keep: bool) -> Iterator[Place]:
    """Set it up, and take it down; SettingsError if the schema is there already and not ours."""
    with new_folder("partbox-chaos-") as folder, _database(dsn, schema, folder) as (found, server):
        made = Place(found, schema, folder, server, keep)
        try:
            yield made
        finally:
            if not made.keep:
                _drop(found, schema, server)
            else:
                shutil.copytree(folder, folder.with_name(f"{folder.name}-kept"), ignore=_data)


@contextmanager
def _database(dsn: str | None, schema: str, folder: Path) -> Iterator[tuple[str, Server | None]]:
    if dsn is not None:
        found = _with_timeout(resolve(dsn))
        _clear(found, schema)
        _make(found, schema)
        yield found, None
        return
    server = Server(folder / "db", options=OPTIONS)
    try:
        found = server.start()
        _make(found, schema)
        yield found, server
    finally:
        server.start()  # after a crash: to let PostgreSQL put its shared memory away
        server.stop("immediate")


def _make(dsn: str, schema: str) -> None:
    migrate(dsn, schema)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(query("chaos_accounts", schema), {})


def _clear(dsn: str, schema: str) -> None:
    """Remove what an earlier run has left; refuse anything else."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        found, ours = conn.execute(query("chaos_found", schema), {"schema": schema}).fetchone() or (False, False)
        if not found:
            return
        if not ours:
            raise SettingsError(
                f"schema {schema!r} exists already and `partbox chaos` did not make it: name another one by --schema"
            )
        living = conn.execute(query("chaos_living", schema), {"seconds": QUIET}).fetchone()
        if living != (0,):
            raise SettingsError(
                f"another `partbox chaos` runs in schema {schema!r}: wait for its end, or name another one by --schema"
            )
        conn.execute(query("chaos_drop", schema), {})


def _drop(dsn: str, schema: str, server: Server | None) -> None:
    if server is None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(query("chaos_drop", schema), {})


def _with_timeout(dsn: str) -> str:
    return make_conninfo("", **{"connect_timeout": str(CONNECT_TIMEOUT), **parts(dsn)})


def _data(folder: str, names: list[str]) -> list[str]:
    """The database itself is not worth keeping."""
    return [name for name in names if name == "db"]


def kept(folder: Path) -> Path:
    """Where what a run leaves is found afterwards."""
    return folder.with_name(f"{folder.name}-kept")
