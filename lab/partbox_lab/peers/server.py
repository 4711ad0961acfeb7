"""The server on which all peers run: one database a run, and what the server says of rows and CPU time."""

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
from psycopg.conninfo import make_conninfo

from partbox_lab.bench.machine import BenchServer
from partbox_lab.peers.peer import Database
from partbox_lab.sql import query
from partbox_lab.workspace import Workspace


class PeerServer:
    """The server of a workspace, which takes a database for each run."""

    def __init__(self, place: Workspace) -> None:
        self._place = place
        with place.connect("peers") as conn:
            self.described = BenchServer.of(conn, place.schema, embedded=place.server is not None)
            self.major = conn.info.server_version // 10_000
            self.extensions = {name for (name,) in conn.execute(query("peers_extensions", ""))}
            self._postmaster = psutil.Process(conn.info.backend_pid).parent() if self.described.local else None

    @contextmanager
    def database(self) -> Iterator[Database]:
        """A fresh database, into whose run no checkpoint falls; dropped afterwards with everybody in it."""
        name = f"peers_{uuid4().hex[:12]}"
        try:
            for statement in ("peers_checkpoint", "peers_create_database"):
                self._execute(statement, name)
            dsn = make_conninfo(self._place.dsn, dbname=name)
            with psycopg.connect(dsn, autocommit=True) as conn:
                yield Database(dsn, conn)
        finally:
            self._execute("peers_drop_database", name)

    def pids(self, conn: psycopg.Connection[Any]) -> list[int]:
        """The server's processes, that of `conn` left out; nothing if they are not on this machine."""
        found = self._postmaster.children() if self._postmaster else []
        return [each.pid for each in found if each.pid != conn.info.backend_pid]

    def _execute(self, statement: str, database: str) -> None:
        with self._place.connect("peers") as conn:
            conn.execute(query(statement, database), {})


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
