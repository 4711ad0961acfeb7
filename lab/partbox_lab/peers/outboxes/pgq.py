"""PgQ: batches between two ticks, read and finished by SQL, with as many queues as consumers, split by key.

If the server lacks the extension, its files are extracted from Debian's package without an installation. The SQL then
runs with the paths of its two libraries filled in, which needs a server on this machine."""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar
from zlib import crc32

import psycopg

from partbox_lab.peers.install import Folder
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample
from partbox_lab.sql import query

BETWEEN_TICKS = 10_000  # events, while many are published


class PgQ(Peer):
    name = "PgQ"
    orders: ClassVar[Mapping[Order, float]] = {"queue": 1.0}
    settings = (
        "a tick and a look every 10 ms, ticker_max_lag 0, ticker_idle_period 100 ms; 2 processes: 2 queues, by key"
    )

    def __init__(self) -> None:
        self._script = b""
        self._untold = 0

    def install(self, folder: Folder) -> str:
        if "pgq" in folder.extensions:
            self._script = query("peers_pgq_extension", "")
            return f"PgQ of the server, psycopg {version('psycopg')}"
        files = folder.debian(f"postgresql-{folder.major}-pgq3=3.5*")
        (script,) = files.glob(f"usr/share/postgresql/{folder.major}/contrib/pgq.sql")
        (libraries,) = files.glob(f"usr/lib/postgresql/{folder.major}/lib")
        self._script = _located(script, libraries)
        return f"PgQ 3.5, psycopg {version('psycopg')}"

    def prepare(self, database: Database, run: PeerRun) -> None:
        database.conn.execute(self._script)
        for queue in _queues(run):
            database.conn.execute(query("peers_pgq_create", ""), {"queue": queue})

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        queues = _queues(run)
        to = [queues[crc32(each.key.encode()) % len(queues)] for each in samples]
        payloads, keys = [each.text for each in samples], [each.key for each in samples]
        conn.execute(query("peers_pgq_insert", ""), {"queues": to, "payloads": payloads, "keys": keys})
        self._untold += len(samples)
        if len(samples) > 1 and self._untold >= BETWEEN_TICKS:
            conn.execute(query("peers_pgq_tick", ""))
            self._untold = 0

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [[sys.executable, program("work_pgq.py")] for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(query("peers_pgq_pending", "")).fetchone() == (0,)


def _queues(run: PeerRun) -> list[str]:
    return [f"events{number}" for number in range(run.processes)]


def _located(script: Path, libraries: Path) -> bytes:
    return script.read_bytes().replace(b"$libdir/", f"{libraries}/".encode())
