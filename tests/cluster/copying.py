"""Moving an outbox elsewhere, with PostgreSQL's own programs; and consumers that write down what they get there."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

import psycopg
from ledger import Ledger
from node import Node
from servers import binaries

from partbox import Outbox
from partbox_lab.chaos.journal import Journal
from partbox_lab.chaos.oracle import HistoryVerdict, LoggedEvent, judge

FAST = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 20}


class Consumer:
    """A subscription on a database: a node of worker processes when started, and what its handlers wrote down."""

    def __init__(self, name: str, dsn: str, folder: Path) -> None:
        self.name = name
        self.dsn = dsn
        self.folder = folder
        folder.mkdir()
        self.journal = Journal(folder / "journal")
        self.nodes: list[Node] = []

    def start(self, processes: int = 1, *arguments: str) -> Node:
        """Start a node, which the test has to end."""
        flags = ["--processes", str(processes), "--subscription", self.name, *arguments]
        name = f"{self.name}-{len(self.nodes)}"
        settings = FAST | {"dsn": self.dsn}
        self.nodes.append(Node(name, self.folder, self.journal.folder, flags, settings, "fanout_app:outbox"))
        return self.nodes[-1]

    def end(self) -> None:
        for node in self.nodes:
            node.end()

    def got(self) -> list[str]:
        """Every event that was delivered, as often as it was."""
        return sorted(delivery.event for delivery in self.journal.deliveries())

    def verdict(self, expected: Iterable[LoggedEvent]) -> HistoryVerdict:
        """On what it got, if that is what it was to get."""
        return judge(expected, self.journal.deliveries())


@contextmanager
def consuming(folder: Path) -> Iterator[Callable[[str, str], Consumer]]:
    """Makes consumers, of a subscription on a database; their processes are ended with the block."""
    made: list[Consumer] = []

    def new(name: str, dsn: str) -> Consumer:
        made.append(Consumer(name, dsn, folder / f"consumer-{len(made)}"))
        return made[-1]

    try:
        yield new
    finally:
        for each in made:
            each.end()


def moved(ledger: Ledger, dsn: str) -> Ledger:
    """The same ledger, where its database is now."""
    there = copy(ledger)
    there.dsn, there.outbox = dsn, Outbox(dsn)
    return there


def dump(dsn: str, file: Path) -> None:
    """`pg_dump` a whole database."""
    _run("pg_dump", "--format=custom", f"--file={file}", f"--dbname={dsn}")


def restore(dsn: str, file: Path, *options: str) -> None:
    """`pg_restore` it into an empty one."""
    _run("pg_restore", "--exit-on-error", *options, f"--dbname={dsn}", str(file))


def left(conn: psycopg.Connection[Any], subscription: str) -> set[str]:
    """The events that the subscription is still to get, as the cursors of the copy say it."""
    found = "select event_id::text, status from partbox.record_status where subscription = %s"
    return {event for event, status in conn.execute(found, [subscription]) if status not in ("done", "dead")}


def consumed(conn: psycopg.Connection[Any], subscription: str) -> bool:
    """True if nothing is left but dead records."""
    query = "select status, count(*) from partbox.record_status where subscription = %s group by status"
    rest = {status: many for status, many in conn.execute(query, [subscription]) if status not in ("done", "dead")}
    assert not rest, f"left in {subscription}: {rest}"
    return True


def _run(program: str, *arguments: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    done = subprocess.run(
        [binaries() / program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
