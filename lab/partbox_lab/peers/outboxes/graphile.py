"""graphile-worker with the settings of its page on performance; a queue name for each key, or none."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder, node_versions
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample
from partbox_lab.peers.processes import prepare
from partbox_lab.sql import query

PINS = {"graphile-worker": "0.17.3", "pg": "8.23.1"}


class Graphile(Peer):
    name = "graphile-worker"
    orders: ClassVar[Mapping[Order, float]] = {"key": 0.4, "none": 0.4}
    settings = "24 jobs at once, LISTEN/NOTIFY; drains: local queue of 500, completions in batches; order: queue name"

    def install(self, folder: Folder) -> str:
        self._home: Path = folder.node("graphile-worker", PINS)
        return node_versions(self._home, "graphile-worker", "pg")

    def environment(self) -> dict[str, str]:
        return {"PEER_MODULES": str(self._home)}

    def prepare(self, database: Database, run: PeerRun) -> None:
        prepare(self._command, database, self, run)

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        queues = [each.key if run.order == "key" else None for each in samples]
        if len(samples) == 1:
            conn.execute(query("peers_graphile_add", ""), {"payload": samples[0].text, "queue": queues[0]})
        else:
            values = {"payloads": [each.text for each in samples], "queues": queues}
            conn.execute(query("peers_graphile_add_many", ""), values)

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [self._command for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(query("peers_graphile_waiting", "")).fetchone() is None

    @property
    def _command(self) -> list[str]:
        return ["node", program("work_graphile.mjs")]
