"""Clusters of real processes."""

import os
import signal
from pathlib import Path
from typing import Any

import psycopg
from forked_commands import Forks
from ledger import Ledger
from node import PATIENCE, Node
from owners import Owners
from waiting import eventually

from partbox.platform import boottime as now
from partbox_lab.chaos.journal import HandlerCall, Journal
from partbox_lab.chaos.oracle import HistoryVerdict, judge

FAST = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 20}


class Cluster:
    """Nodes on one database, its published events, and the journal of their handlers."""

    def __init__(self, dsn: str, folder: Path, ledger: Ledger, owners: Owners) -> None:
        self.dsn = dsn
        self.folder = folder
        self.ledger = ledger
        self.owners = owners
        self.journal = Journal(folder / "journal")
        self.nodes: list[Node] = []

    def node(
        self,
        name: str,
        *arguments: str,
        processes: int = 1,
        concurrency: int = 4,
        fresh: bool = False,
        forks: Forks | None = None,
        **settings: Any,
    ) -> Node:
        """Start a node; it is ended with the test."""
        flags = ["--processes", str(processes), "--concurrency", str(concurrency), *arguments]
        given = FAST | {"dsn": self.dsn} | settings
        node = Node(name, self.folder, self.journal.folder, flags, given, fresh=fresh, forks=forks)
        self.nodes.append(node)
        return node

    def balanced(self, processes: int) -> None:
        """Wait until this many processes own equal shares of everything."""
        eventually(lambda: self.owners.even(processes), PATIENCE, 0.05)

    def delivered(self, timeout: float = 60) -> None:
        """Wait until everything in the log has been handled and its progress is saved."""
        published = {one.event for one in self.ledger.published()}

        def all_handled() -> bool:
            missing = published - self.journal.ended()
            assert not missing, f"{len(missing)} events are not delivered"
            return True

        eventually(all_handled, timeout, 0.05, moves=lambda: len(self.journal.ended()))
        eventually(self.owners.consumed, timeout, 0.05)

    def verdict(self) -> HistoryVerdict:
        """On everything so far."""
        return judge(self.ledger.published(), self.journal.deliveries())

    def gate(self, name: str = "gate") -> Path:
        """A gate, shut until the file is touched."""
        return self.folder / name

    def running(self, events: list[str]) -> list[HandlerCall]:
        """Wait until handlers of these events run; their deliveries."""
        eventually(lambda: set(events) <= self.journal.started(), PATIENCE, 0.05)
        return self.journal.deliveries(lambda delivery: delivery.event in events and delivery.end is None)

    def kill(self, pid: int) -> float:
        """Kill a worker process; return the time."""
        os.kill(pid, signal.SIGKILL)
        return now()

    def clock(self) -> float:
        """The time that deliveries are noted in."""
        return now()

    def pending(self, partitions: set[int]) -> set[str]:
        """The unhandled events of these partitions."""
        ended = self.journal.ended()
        return {event for event, partition in self.owners.events() if partition in partitions and event not in ended}

    def cut(self, application: str) -> int:
        """End the sessions of these applications on the server, a LIKE pattern; how many there were."""
        return len(
            self.owners.conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name like %s",
                [application],
            ).fetchall()
        )

    def reconnect(self) -> None:
        """Look at the database through a new connection, after it was away."""
        self.owners.conn.close()
        self.owners.conn = psycopg.connect(self.dsn, autocommit=True)

    def close(self) -> None:
        self.owners.conn.close()
        for node in self.nodes:
            node.end()
