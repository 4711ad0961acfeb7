"""PgQueuer over asyncpg; its one order is that of a queue of which one job runs at a time (concurrency_limit=1)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder, versions
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample
from partbox_lab.peers.processes import prepare
from partbox_lab.sql import query

PINS = ["pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"]


class PgQueuer(Peer):
    name = "PgQueuer"
    orders: ClassVar[Mapping[Order, float]] = {"none": 0.4, "queue": 0.01}
    settings = "asyncpg, uvloop, batch_size 100, LISTEN/NOTIFY; order: concurrency_limit 1, batch_size 1"

    def install(self, folder: Folder) -> str:
        self._python: Path = folder.python("pgqueuer", PINS)
        return versions(self._python, "pgqueuer", "asyncpg", "uvloop")

    def prepare(self, database: Database, run: PeerRun) -> None:
        prepare(self._command, database, self, run)

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        conn.execute(query("peers_pgqueuer_enqueue", ""), {"payloads": [each.text.encode() for each in samples]})

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [self._command for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(query("peers_pgqueuer_waiting", "")).fetchone() is None

    @property
    def _command(self) -> list[str]:
        return [str(self._python), program("work_pgqueuer.py")]
