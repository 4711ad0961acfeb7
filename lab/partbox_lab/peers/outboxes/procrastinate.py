"""procrastinate: asynchronous tasks, jobs deleted when they are done; a lock for each key, or none."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder, versions
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample
from partbox_lab.peers.processes import prepare
from partbox_lab.sql import query

PINS = ["procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"]


class Procrastinate(Peer):
    name = "procrastinate"
    orders: ClassVar[Mapping[Order, float]] = {"key": 0.02, "none": 0.02}
    settings = "async task, concurrency 10, delete_jobs always, LISTEN/NOTIFY; order: lock"

    def install(self, folder: Folder) -> str:
        self._python: Path = folder.python("procrastinate", PINS)
        return versions(self._python, "procrastinate", "psycopg")

    def prepare(self, database: Database, run: PeerRun) -> None:
        prepare(self._command, database, self, run)

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        locks = [each.key if run.order == "key" else None for each in samples]
        values = {"locks": locks, "payloads": [each.text for each in samples]}
        conn.execute(query("peers_procrastinate_defer", ""), values)

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [self._command for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(query("peers_procrastinate_waiting", "")).fetchone() is None

    @property
    def _command(self) -> list[str]:
        return [str(self._python), program("work_procrastinate.py")]
