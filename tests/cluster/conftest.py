"""Clusters of real processes."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from journal import Delivery, Journal
from ledger import Ledger
from node import PATIENCE, Node
from oracle import Verdict, judge
from owners import Owners
from waiting import eventually

FAST = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 20}


class Cluster:
    """Nodes on one database, what is published there, and what their handlers wrote down."""

    def __init__(self, dsn: str, folder: Path, ledger: Ledger, owners: Owners) -> None:
        self.dsn = dsn
        self.folder = folder
        self.ledger = ledger
        self.owners = owners
        self.journal = Journal(folder / "journal")
        self.nodes: list[Node] = []

    def node(self, name: str, *arguments: str, processes: int = 1, concurrency: int = 4, **settings: Any) -> Node:
        """Start a node; it is ended with the test."""
        flags = ["--processes", str(processes), "--concurrency", str(concurrency), *arguments]
        node = Node(name, self.folder, self.journal.folder, flags, FAST | {"dsn": self.dsn} | settings)
        self.nodes.append(node)
        return node

    def balanced(self, processes: int) -> None:
        """Wait until so many processes own equal shares of everything."""
        eventually(lambda: self.owners.even(processes), PATIENCE, 0.05)

    def delivered(self, timeout: float = 60) -> None:
        """Wait until everything in the log has been handled and its progress is saved."""
        eventually(lambda: not self._missing(), timeout, 0.1)
        eventually(self.owners.consumed, timeout, 0.1)

    def verdict(self) -> Verdict:
        """On everything so far."""
        return judge(self.ledger.published(), self.journal.deliveries())

    def gate(self, name: str = "gate") -> Path:
        """A gate, shut until the file is touched."""
        return self.folder / name

    def running(self, events: list[str]) -> list[Delivery]:
        """Wait until handlers of these events run; their deliveries."""
        eventually(lambda: set(events) <= self.journal.started(), PATIENCE, 0.05)
        return self.journal.deliveries(lambda delivery: delivery.event in events and delivery.end is None)

    def close(self) -> None:
        for node in self.nodes:
            node.end()

    def _missing(self) -> int:
        ended = self.journal.ended()
        missing = sum(one.event not in ended for one in self.ledger.published())
        assert not missing, f"{missing} events are not delivered"
        return missing


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[[str], Cluster]]:
    """Makes a cluster, without nodes yet, on the database of a DSN."""
    made: list[Cluster] = []
    connections: list[psycopg.Connection[Any]] = []

    def new(dsn: str) -> Cluster:
        connections.append(psycopg.connect(dsn, autocommit=True))
        folder = tmp_path / f"cluster-{len(made)}"
        folder.mkdir()
        made.append(Cluster(dsn, folder, Ledger(dsn), Owners(connections[-1])))
        return made[-1]

    try:
        yield new
    finally:
        for cluster in made:
            cluster.close()
        for conn in connections:
            with closing(conn):
                pass


@pytest.fixture
def cluster(new_cluster: Callable[[str], Cluster], dsn: str) -> Cluster:
    """A cluster without nodes yet, on a fresh database."""
    return new_cluster(dsn)
