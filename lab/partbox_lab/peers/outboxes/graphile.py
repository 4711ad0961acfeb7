"""graphile-worker with the settings of its performance page, and a queue name for each key or none."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import psycopg

from partbox_lab.peers.outboxes.programs import NodePeer
from partbox_lab.peers.peer import Order, PeerRun, Sample
from partbox_lab.sql import query


class Graphile(NodePeer):
    name = "graphile-worker"
    orders: ClassVar[Mapping[Order, float]] = {"key": 0.4, "none": 0.4}
    settings = "24 jobs at once, LISTEN/NOTIFY; drains: local queue of 500, completions in batches; order: queue name"
    program = "work_graphile.mjs"
    pins: ClassVar[Mapping[str, str]] = {"graphile-worker": "0.17.3", "pg": "8.23.1"}
    waiting = "peers_graphile_waiting"

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        queues = [each.key if run.order == "key" else None for each in samples]
        if len(samples) == 1:
            conn.execute(query("peers_graphile_add", ""), {"payload": samples[0].text, "queue": queues[0]})
        else:
            values = {"payloads": [each.text for each in samples], "queues": queues}
            conn.execute(query("peers_graphile_add_many", ""), values)
