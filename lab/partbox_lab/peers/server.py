"""The server on which all peers run: one database a run, and what the server says of WAL, rows and CPU time."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from partbox.embedded.server import Server
from partbox_lab.peers.peer import Database
from partbox_lab.sql import query

OPTIONS = {"shared_buffers": "1GB", "max_wal_size": "16GB", "checkpoint_timeout": "1h", "max_connections": "200"}
"""No checkpoint falls into a run: page images after one would be a matter of luck."""
VARIABLES = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "sslmode": "PGSSLMODE"}
SHOWN = ("shared_buffers", "max_wal_size", "checkpoint_timeout", "fsync", "synchronous_commit", "full_page_writes")


class PeerServer:
    """A server that takes a database for each run."""

    def __init__(self, dsn: str, postmaster: int | None) -> None:
        self._dsn = dsn
        self._postmaster = postmaster
        """None if its processes cannot be read."""
        with psycopg.connect(dsn, autocommit=True) as conn:
            self.version = conn.info.parameter_status("server_version") or ""
            self.major = conn.info.server_version // 10_000
            self.settings = {name: str(_value(conn, "peers_setting", name=name)) for name in SHOWN}
            self.extensions = {name for (name,) in conn.execute(query("peers_extensions", ""))}

    @property
    def knows_backends(self) -> bool:
        return self._postmaster is not None

    @contextmanager
    def database(self) -> Iterator[Database]:
        """A fresh database, dropped afterwards with everybody in it."""
        name = f"peers_{uuid4().hex[:12]}"
        self._execute("peers_create_database", name)
        try:
            dsn = make_conninfo(self._dsn, dbname=name)
            with psycopg.connect(dsn, autocommit=True) as conn:
                yield Database(dsn, conn, _environment(dsn))
        finally:
            self._execute("peers_drop_database", name)

    def checkpoint(self) -> None:
        self._execute("peers_checkpoint", "")

    def cpu(self, conn: psycopg.Connection[Any]) -> dict[int, float]:
        """Seconds of CPU time by process of the server, that of `conn` left out."""
        if self._postmaster is None:
            return {}
        found = psutil.Process(self._postmaster).children()
        return spent([each for each in found if each.pid != conn.info.backend_pid])

    def _execute(self, statement: str, database: str) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            conn.execute(query(statement, database), {})


@contextmanager
def started(folder: Path, binaries: Path | None) -> Iterator[PeerServer]:
    """A server of our own on a unix socket, which nothing outside of this machine reaches."""
    server = Server(folder / "server", binaries=binaries, options=OPTIONS)
    try:
        dsn = server.start()
        pid = int((folder / "server" / "pgdata" / "postmaster.pid").read_text().split("\n", 1)[0])
        yield PeerServer(dsn, pid)
    finally:
        server.stop()


def installed_binaries(major: int) -> Path | None:
    """The programs of a PostgreSQL of this version on the machine, found by Debian's pg_config."""
    named = os.environ.get("PARTBOX_TEST_BINARIES")
    candidates = [Path(named)] if named else [*Path("/usr/lib/postgresql").glob(f"{major}/bin")]
    for folder in candidates:
        if (folder / "initdb").exists():
            said = subprocess.run([folder / "initdb", "--version"], capture_output=True, text=True, check=False).stdout
            if re.search(rf"\b{major}\b", said):
                return folder
    return None


def spent(processes: list[psutil.Process]) -> dict[int, float]:
    """Seconds of CPU time by process, of those that still live."""
    found = {}
    for each in processes:
        try:
            found[each.pid] = sum(each.cpu_times()[:2])
        except psutil.NoSuchProcess:
            continue
    return found


def wal(conn: psycopg.Connection[Any]) -> int:
    """Bytes of WAL since the server was made."""
    return int(_value(conn, "peers_wal"))


def dead(conn: psycopg.Connection[Any]) -> int:
    """Row versions that updates and deletes have left in this database."""
    return int(_value(conn, "peers_dead"))


def _value(conn: psycopg.Connection[Any], statement: str, **values: str) -> Any:
    row = conn.execute(query(statement, ""), values).fetchone()
    assert row is not None
    return row[0]


def _environment(dsn: str) -> dict[str, str]:
    parts = conninfo_to_dict(dsn)
    found = {variable: str(parts[name]) for name, variable in VARIABLES.items() if parts.get(name) is not None}
    return found | {"PGDATABASE": str(parts["dbname"])}
