"""pg-boss: batches by polling; one job of a key at a time by the policy `singleton`, or the standard policy.

Version 10 is the last for Node 20; version 12, for Node 22, has a policy `key_strict_fifo`. With `singleton` no two
jobs of a key run at once, but a batch has any job of a key, and jobs of one transaction have no order among each other:
with order jobs are taken one by one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.install import Folder, node_versions
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample
from partbox_lab.peers.processes import prepare
from partbox_lab.sql import query

PINS = {"pg-boss": "10.4.2", "pg": "8.23.1"}


class PgBoss(Peer):
    name = "pg-boss"
    orders: ClassVar[Mapping[Order, float]] = {"key": 0.02, "none": 0.4}
    settings = (
        "2 workers, batches of 2,000, a look every 0.5 s and after each batch; order: singleton, 4 workers, one by one"
    )

    def install(self, folder: Folder) -> str:
        self._home: Path = folder.node("pg-boss", PINS)
        return node_versions(self._home, "pg-boss", "pg")

    def environment(self) -> dict[str, str]:
        return {"PEER_MODULES": str(self._home)}

    def prepare(self, database: Database, run: PeerRun) -> None:
        prepare(self._command, database, self, run)

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        keyed = run.order == "key"
        keys, payloads = [each.key if keyed else None for each in samples], [each.text for each in samples]
        values = {"policy": "singleton" if keyed else "standard", "payloads": payloads, "keys": keys}
        conn.execute(query("peers_pgboss_insert", ""), values)

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [self._command for _ in range(run.processes)]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return conn.execute(query("peers_pgboss_waiting", "")).fetchone() is None

    @property
    def _command(self) -> list[str]:
        return ["node", program("work_pgboss.mjs")]
