"""partbox with its defaults, as one node."""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar

import psycopg

from partbox import Event, Outbox
from partbox.db.delivery.outstanding import read_outstanding
from partbox.db.schema.migrate import migrate
from partbox_lab.peers.install import Folder
from partbox_lab.peers.outboxes.programs import program
from partbox_lab.peers.peer import Database, Order, Peer, PeerRun, Sample


class Partbox(Peer):
    name = "partbox"
    orders: ClassVar[Mapping[Order, float]] = {"key": 1.0, "none": 1.0}
    settings = "defaults"

    def install(self, folder: Folder) -> str:
        return f"partbox {version('partbox')}, psycopg {version('psycopg')}"

    def prepare(self, database: Database, run: PeerRun) -> None:
        migrate(database.dsn)
        self._outbox = Outbox(database.dsn)

    def publish(self, conn: psycopg.Connection[Any], samples: Sequence[Sample], run: PeerRun) -> None:
        events = [_event(each, keyed=run.order == "key") for each in samples]
        if len(events) == 1:
            self._outbox.publish(conn, events[0])
        else:
            self._outbox.publish_many(conn, events)

    def commands(self, run: PeerRun) -> list[list[str]]:
        return [[sys.executable, program("work_partbox.py")]]

    def is_done(self, conn: psycopg.Connection[Any], run: PeerRun) -> bool:
        return read_outstanding(conn, "partbox", "default").is_done


def _event(sample: Sample, *, keyed: bool) -> Event:
    aggregate: dict[str, Any] = {"aggregate_type": "Order", "aggregate_id": sample.key} if keyed else {}
    return Event("OrderPlaced", sample.payload, **aggregate)
