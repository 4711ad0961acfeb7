"""Clusters of real processes."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from clusters import Cluster
from ledger import Ledger
from owners import Owners

LINES = 300
"""Lines of each node's log that pytest shows where a test fails."""


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[Callable[[str], Cluster]]:
    """Makes a cluster, without nodes yet, on the database of a DSN."""
    made: list[Cluster] = []

    def new(dsn: str) -> Cluster:
        folder = tmp_path / f"cluster-{len(made)}"
        folder.mkdir()
        made.append(Cluster(dsn, folder, Ledger(dsn), Owners(psycopg.connect(dsn, autocommit=True))))
        return made[-1]

    try:
        yield new
    finally:
        for cluster in made:
            cluster.close()
            for node in cluster.nodes:
                log = node.log.splitlines()[-LINES:]
                sys.stdout.write("\n".join([f"The end of the log of node {node.name}:", *log, ""]))


@pytest.fixture
def cluster(new_cluster: Callable[[str], Cluster], dsn: str) -> Cluster:
    """A cluster without nodes yet, on a fresh database."""
    return new_cluster(dsn)
