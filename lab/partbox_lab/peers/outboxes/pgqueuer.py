"""PgQueuer over asyncpg. Its only order is that of a queue that runs one job at a time (concurrency_limit=1)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder, versions
from partbox_lab.peers.outboxes.programs import ProgramPeer, program
from partbox_lab.peers.peer import Order, PeerRun, Sample
from partbox_lab.sql import query

PINS = ["pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"]


class PgQueuer(ProgramPeer):
    name = "PgQueuer"
    orders: ClassVar[Mapping[Order, float]] = {"none": 0.4, "queue": 0.01}
    settings = "asyncpg, uvloop, batch_size 100, LISTEN/NOTIFY; order: concurrency_limit 1, batch_size 1"
    waiting = "peers_pgqueuer_waiting"

    def install(self, folder: Folder) -> str:
        python = folder.python("pgqueuer", PINS)
        self.command = [str(python), program("work_pgqueuer.py")]
        return versions(python, "pgqueuer", "asyncpg", "uvloop")

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        conn.execute(query("peers_pgqueuer_enqueue", ""), {"payloads": [each.text.encode() for each in samples]})
