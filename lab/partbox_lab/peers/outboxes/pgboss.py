"""pg-boss: batches by polling, with the policy `singleton` for the order by key, or the standard policy.

Version 10 is the last for Node 20. Version 12, for Node 22, has a policy `key_strict_fifo`. With `singleton`, no two
jobs of a key run at once, but a batch holds jobs of a key in any order, and jobs of one transaction have no order. With
order, jobs are therefore taken one by one."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.outboxes.programs import NodePeer
from partbox_lab.peers.peer import Order, PeerRun, Sample
from partbox_lab.sql import query


class PgBoss(NodePeer):
    name = "pg-boss"
    orders: ClassVar[Mapping[Order, float]] = {"key": 0.02, "none": 0.4}
    settings = (
        "2 workers, batches of 2,000, a look every 0.5 s and after each batch; order: singleton, 4 workers, one by one"
    )
    program = "work_pgboss.mjs"
    pins: ClassVar[Mapping[str, str]] = {"pg-boss": "10.4.2", "pg": "8.23.1"}
    waiting = "peers_pgboss_waiting"

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        keyed = run.order == "key"
        keys, payloads = [each.key if keyed else None for each in samples], [each.text for each in samples]
        values = {"policy": "singleton" if keyed else "standard", "payloads": payloads, "keys": keys}
        conn.execute(query("peers_pgboss_insert", ""), values)
