"""procrastinate: asynchronous tasks, jobs deleted when they are done, and a lock for each key or none."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder, versions
from partbox_lab.peers.outboxes.programs import ProgramPeer, program
from partbox_lab.peers.peer import Order, PeerRun, Sample
from partbox_lab.sql import query

PINS = ["procrastinate==3.10.0", "psycopg[binary,pool]==3.3.9"]


class Procrastinate(ProgramPeer):
    name = "procrastinate"
    orders: ClassVar[Mapping[Order, float]] = {"key": 0.02, "none": 0.02}
    settings = "async task, concurrency 10, delete_jobs always, LISTEN/NOTIFY; order: lock"
    waiting = "peers_procrastinate_waiting"

    def install(self, folder: Folder) -> str:
        python = folder.python("procrastinate", PINS)
        self.command = [str(python), program("work_procrastinate.py")]
        return versions(python, "procrastinate", "psycopg")

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        locks = [each.key if run.order == "key" else None for each in samples]
        values = {"locks": locks, "payloads": [each.text for each in samples]}
        conn.execute(query("peers_procrastinate_defer", ""), values)
