"""A synchronous standby becomes the primary under load: one DSN names both, and everybody goes on by himself."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from clusters import Cluster
from ledger import Ledger
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from servers import OwnServer, new_standby, promote
from waiting import eventually


@dataclass
class Pair:
    """A primary and its standby; `dsn` names both, the standby first."""

    primary: OwnServer
    standby: Path
    dsn: str

    def ask(self, question: str) -> Any:
        """Ask the primary."""
        with psycopg.connect(self.primary.dsn, autocommit=True) as conn:
            return conn.execute(question).fetchone()

    def fail_over(self) -> None:
        """The primary is gone, and the standby takes its place."""
        self.primary.server.kill()
        promote(self.standby)


@pytest.fixture
def pair(own_server: OwnServer, folder: Path) -> Iterator[Pair]:
    with new_standby(own_server.server, folder) as standby:
        host = conninfo_to_dict(own_server.dsn)["host"]
        dsn = make_conninfo(own_server.dsn, host=f"{standby},{host}", target_session_attrs="read-write")
        pair = Pair(own_server, standby, dsn)
        eventually(lambda: pair.ask("select from pg_stat_replication where state = 'streaming'") is not None)
        yield pair


class Persistent(threading.Thread):
    """Publishes again and again, on a new connection if need be. `acknowledged`: the events whose commit it heard."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(daemon=True)
        self._ledger = ledger
        self.acknowledged: list[str] = []
        self.losses = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._publish()
            except psycopg.OperationalError:
                self.losses += 1
                self.stopping.wait(0.05)

    def _publish(self) -> None:
        with psycopg.connect(self._ledger.dsn, autocommit=True) as conn:
            while not self.stopping.wait(0.01):
                names = self._ledger.names[len(self.acknowledged) % 50 :][:5]
                with conn.transaction():
                    ids = self._ledger.publish(conn, names)
                self.acknowledged += ids


@contextmanager
def persisting(ledger: Ledger) -> Iterator[Persistent]:
    publisher = Persistent(ledger)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stopping.set()
        publisher.join()


def has_moved_on(cluster: Cluster, publisher: Persistent) -> None:
    """Wait until something that is published from now on is delivered."""
    so_far = len(publisher.acknowledged)
    eventually(lambda: len(publisher.acknowledged) > so_far + 50)
    last = publisher.acknowledged[-1]
    eventually(lambda: last in cluster.journal.ended())


@pytest.mark.every_version("a standby is promoted")
def test_a_failover_with_synchronous_replication_loses_nothing_and_no_handler_saw_a_lost_event(new_cluster, pair):
    with psycopg.connect(pair.primary.dsn, autocommit=True) as conn:
        conn.execute("alter system set synchronous_standby_names = '*'")
        conn.execute("select pg_reload_conf()")
    eventually(lambda: pair.ask("select from pg_stat_replication where sync_state = 'sync'") is not None)
    cluster = new_cluster(pair.dsn)
    cluster.node("node", processes=2)
    cluster.balanced(2)
    processes = set(cluster.owners.instances().values())
    with persisting(cluster.ledger) as publisher:
        has_moved_on(cluster, publisher)
        pair.fail_over()
        has_moved_on(cluster, publisher)
    cluster.reconnect()
    cluster.delivered()

    assert publisher.losses > 0
    existing = {one.event for one in cluster.ledger.published()}
    assert set(publisher.acknowledged) <= existing
    assert set(cluster.owners.instances().values()) == processes, "the workers went on by themselves"
    verdict = cluster.verdict()
    verdict.backwards.clear()  # progress is saved without waiting for the standby: an owner may repeat a suffix
    assert verdict.wrong() == {}
