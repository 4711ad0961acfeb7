"""The server that all peers run on, with one database per run, and its statistics of rows and CPU time."""

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
    """The server of a workspace."""

    def __init__(self, place: Workspace) -> None:
        self._place = place
        with place.connect("peers") as conn:
            self.described = BenchServer.of(conn, place.schema, embedded=place.server is not None)
            self.major = conn.info.server_version // 10_000
            self.extensions = {name for (name,) in conn.execute(query("peers_extensions", ""))}
            self._postmaster = psutil.Process(conn.info.backend_pid).parent() if self.described.local else None

    @contextmanager
    def database(self) -> Iterator[Database]:
        """Hold a fresh database after a checkpoint, so that no checkpoint falls into the run. Afterwards drop it with
        all sessions."""
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
        """Return the server's processes without that of `conn`, or nothing if they are not on this machine."""
        found = self._postmaster.children() if self._postmaster else []
        return [each.pid for each in found if each.pid != conn.info.backend_pid]

    def _execute(self, statement: str, database: str) -> None:
        with self._place.connect("peers") as conn:
            conn.execute(query(statement, database), {})


def installed_binaries(major: int) -> Path | None:
    """Return the folder of the programs of this PostgreSQL version on the machine, or None. Search
    PARTBOX_TEST_BINARIES if it is set, else the folders of Debian."""
    named = os.environ.get("PARTBOX_TEST_BINARIES")
    candidates = [Path(named)] if named else [*Path("/usr/lib/postgresql").glob(f"{major}/bin")]
    for folder in candidates:
        if (folder / "initdb").exists():
            said = subprocess.run([folder / "initdb", "--version"], capture_output=True, text=True, check=False).stdout
            if re.search(rf"\b{major}\b", said):
                return folder
    return None
