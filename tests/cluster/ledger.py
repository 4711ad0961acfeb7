"""Publishers of numbered events: chaos's accounts, in the database of a test."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import Connection, Rollback

from partbox import Event, Outbox
from partbox_lab.chaos.ledger import Accounts
from partbox_lab.chaos.oracle import LoggedEvent
from partbox_lab.sql import query

REST = 0.05
"""Seconds between the transactions of who publishes for as long as a test lasts: a backlog is not the point."""


class Ledger:
    """`aggregates` accounts, in the database of `dsn`."""

    def __init__(self, dsn: str, aggregates: int = 500) -> None:
        self.dsn = dsn
        self.outbox = Outbox(dsn)
        self.names = [f"account-{number}" for number in range(aggregates)]
        self.accounts = Accounts("partbox")
        with psycopg.connect(dsn) as conn:
            conn.execute(query("chaos_accounts", self.accounts.schema), {})
            self.accounts.open(conn, self.names)

    def publish(
        self, conn: Connection[Any], names: Sequence[str], burst: int = 1, event_type: str = "Step", **payload: Any
    ) -> list[str]:
        """Publish `burst` events of each aggregate in the transaction of `conn`; their ids."""
        events = [
            Event(event_type, {"seq": seq, **payload}, aggregate_type="Account", aggregate_id=name)
            for name, seq in self.accounts.raised(conn, names, burst)
        ]
        return [str(id) for id in self.outbox.publish_many(conn, events)]

    def publish_now(self, names: Sequence[str], burst: int = 1, **payload: Any) -> list[str]:
        """The same in a transaction of its own."""
        with psycopg.connect(self.dsn) as conn:
            return self.publish(conn, names, burst, **payload)

    def published(self) -> list[LoggedEvent]:
        """The events of the log."""
        with psycopg.connect(self.dsn) as conn:
            return self.accounts.log(conn)


class Publisher(threading.Thread):
    """A thread that publishes `count` events or, with None, until told to stop. Every tenth transaction rolls back.

    It rests between its transactions, unless it has a count and is told nothing else."""

    def __init__(
        self,
        ledger: Ledger,
        seed: int,
        count: int | None = None,
        *,
        rest: float | None = None,
        durable: bool = True,
        **payload: Any,
    ) -> None:
        super().__init__(name=f"publisher-{seed}", daemon=True)
        self._ledger = ledger
        self._random = random.Random(seed)
        self._count = count
        self._seconds = rest if rest is not None else REST if count is None else 0.0
        self._durable = durable
        self._payload = payload
        self.stopping = threading.Event()
        self.committed = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._ledger.dsn, autocommit=True) as conn:
                if not self._durable:
                    conn.execute("set synchronous_commit = off")
                while not self.stopping.is_set() and self.committed != self._count:
                    self._transact(conn)
                    self._rest()
        except Exception as error:
            self.error = error

    def _rest(self) -> None:
        if self._seconds:
            self.stopping.wait(self._seconds)

    def _transact(self, conn: Connection[Any]) -> None:
        burst = self._random.choice((1, 1, 2))
        left = (self._count - self.committed) // burst if self._count is not None else 8
        if not left:
            burst, left = 1, 1
        names = self._random.sample(self._ledger.names, min(left, self._random.randint(1, 8)))
        doomed = self._random.random() < 0.1
        with conn.transaction():
            ids = self._ledger.publish(conn, names, burst, **self._payload)
            if doomed:
                raise Rollback
        self.committed += 0 if doomed else len(ids)


@contextmanager
def publishing(
    ledger: Ledger, threads: int = 2, count: int | None = None, **options: Any
) -> Iterator[Callable[[], int]]:
    """Publishers at work, `count` events among them; gives how many events are committed. Waits for them at the end."""
    publishers = [
        Publisher(ledger, seed, None if count is None else count // threads, **options) for seed in range(threads)
    ]
    for publisher in publishers:
        publisher.start()
    try:
        yield lambda: sum(publisher.committed for publisher in publishers)
    finally:
        for publisher in publishers:
            if count is None:
                publisher.stopping.set()
            publisher.join()
    errors = [publisher.error for publisher in publishers if publisher.error]
    assert not errors, errors


@contextmanager
def at_work(publishers: list[Any]) -> Iterator[list[Any]]:
    """Start these threads of publishers; at the end stop them and wait for them."""
    for each in publishers:
        each.start()
    try:
        yield publishers
    finally:
        for each in publishers:
            each.stopping.set()
        for each in publishers:
            each.join()
