"""Threads that publish during a chaos run, each with a session and a shape of transactions of its own."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.errors import DiskFull

from partbox_lab.chaos import statements
from partbox_lab.chaos.ledger import Ledger
from partbox_lab.chaos.oracle import LoggedEvent
from partbox_lab.workspace import Workspace

ROLE: Final = "publisher"
DOOMED = 0.1  # share of the transactions that publish and then roll back
RETRY = 0.2  # seconds until a lost connection is opened again
JOIN = 15.0  # seconds
LOOK = 0.05  # seconds
LARGE: Final = (100_000, 1_000_000)  # bytes of a payload, from and to
HUGE: Final = (0.1, 5_000_000)  # probability of an insert by SQL, and its bytes
LEAP: Final = 1_200_000  # ids: more than a late range may span
# A prepared transaction whose end was lost holds its locks until someone resolves it.
LOCK_TIMEOUT = "5s"


class ChaosPublisher(threading.Thread):
    """A thread that publishes random transactions until `stopping` is set. `interrupted` counts transactions of unknown
    outcome, and `refused` counts those transactions that found no room on the disk."""

    pause = (0.01, 0.05)  # seconds between two transactions, from and to
    lingers = False  # True if a transaction stays open for long

    def __init__(self, place: Workspace, ledger: Ledger, seed: str) -> None:
        super().__init__(name=f"chaos-{seed}", daemon=True)
        self.place = place
        self.ledger = ledger
        self.dice = random.Random(seed)
        self.stopping = threading.Event()
        self._held = False
        self._rests_until = 0.0
        self.interrupted = self.refused = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                try:
                    self._session()
                except (psycopg.OperationalError, psycopg.InternalError) as error:
                    if isinstance(error, DiskFull):
                        self.refused += 1
                    else:
                        self.interrupted += 1
                    self.stopping.wait(RETRY)
        except Exception as error:
            self.error = error

    def _session(self) -> None:
        with self.place.connect(ROLE) as conn:
            # A commit that was acknowledged must survive a crash, or the ledger would claim lost events.
            conn.execute("select set_config('synchronous_commit', 'on', false)")
            conn.execute("select set_config('lock_timeout', %s, false)", [LOCK_TIMEOUT])
            self.begin(conn)
            while not self.stopping.wait(self.dice.uniform(*self.pause)):
                if not self._held and time.monotonic() > self._rests_until:
                    self.transact(conn)

    def hold(self, held: bool) -> None:
        """Pause or resume publishing, without ending the session."""
        self._held = held

    def rest(self, seconds: float) -> None:
        """Begin no transaction for some seconds."""
        self._rests_until = time.monotonic() + seconds

    def begin(self, conn: Connection[Any]) -> None:
        """Prepare a new session. The base class does nothing."""

    def transact(self, conn: Connection[Any]) -> None:
        """Run one transaction and enter its events into the ledger, as rolled back or as committed."""
        doomed = self.dice.random() < DOOMED
        events: list[LoggedEvent] = []
        with conn.transaction(force_rollback=doomed) as ended:
            for published in self.steps(conn):
                events.extend(published)
        # The connection was lost in the rollback of a savepoint: psycopg only warns, and this would look like a commit.
        if ended.status == ended.Status.FAILED:
            raise psycopg.OperationalError("the connection was lost before the commit")
        if doomed:
            self.ledger.declined(len(events))
        else:
            self.ledger.committed(events)

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        """Publish the events of one transaction, and yield the events of each step."""
        raise NotImplementedError

    def some(self, names: Sequence[str], most: int) -> list[str]:
        """Return between one and `most` random names."""
        return self.dice.sample(names, self.dice.randint(1, most))


class Short(ChaosPublisher):
    """A publisher of short transactions."""

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.names, 5), self.dice.choice((1, 1, 2)))


class Slow(ChaosPublisher):
    """A publisher that pauses within transactions: others wait for its locks, or commit higher ids first."""

    lingers = True

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.names, 2))
        self.stopping.wait(self.dice.uniform(0.02, 0.4))
        yield self.ledger.published(conn, [(None, None)])


class Savepoints(ChaosPublisher):
    """A publisher that rolls some savepoints back. Names are sorted, so that locks are taken in one order."""

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        for name in sorted(self.some(self.ledger.names, 4)):
            taken_back = self.dice.random() < 0.4
            with conn.transaction(force_rollback=taken_back):
                events = self.ledger.raised(conn, [name])
            if taken_back:
                self.ledger.declined(len(events))
            else:
                yield events


class Copies(ChaosPublisher):
    """A publisher of large bursts: most go by `COPY`, small bursts by one `INSERT`."""

    pause = (1.0, 3.0)

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.names, 40), self.dice.randint(2, 8))


class Unlocked(ChaosPublisher):
    """A publisher that locks no account. The events have no numbers, and some have no aggregate."""

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        names = [*(f"free-{number}" for number in range(10)), None]
        for _ in range(self.dice.randint(1, 4)):
            yield self.ledger.published(conn, [(self.dice.choice(names), None)])


class TwoPhase(ChaosPublisher):
    """A publisher that prepares its transactions and commits them later."""

    pause = (0.05, 0.3)
    lingers = True
    _number = 0

    @property
    def prefix(self) -> str:
        return self.place.named("prepared ")

    def begin(self, conn: Connection[Any]) -> None:
        """Commit the transactions that a lost connection left prepared, since they hold locks."""
        resolve(conn, self.place.schema, self.prefix)
        conn.autocommit = False

    def transact(self, conn: Connection[Any]) -> None:
        """Prepare a transaction, wait, and commit it or roll it back."""
        self._number += 1
        gid = f"{self.prefix}{self._number}"
        conn.tpc_begin(gid)
        try:
            events = self.ledger.raised_silently(conn, self.some(self.ledger.prepared, 3))
            conn.tpc_prepare()
        except psycopg.Error:
            if not conn.closed:
                conn.tpc_rollback()
            raise
        self.stopping.wait(self.dice.uniform(0.0, 0.5))
        if self.dice.random() < DOOMED:
            conn.tpc_rollback()
            self.ledger.declined(len(events))
        else:
            conn.tpc_commit()
            self.ledger.committed(events)


class HeldOpen(ChaosPublisher):
    """A publisher that keeps transactions open for seconds, on accounts of its own."""

    pause = (0.1, 1.0)
    lingers = True

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.held, 3))
        self.stopping.wait(self.dice.uniform(2.0, 8.0))
        yield self.ledger.raised(conn, self.some(self.ledger.held, 3))


class Asked(ChaosPublisher):
    """A publisher that publishes only for a time after `ask`."""

    _until = 0.0

    def ask(self, seconds: float) -> None:
        """Publish for some seconds from now on."""
        self._until = time.monotonic() + seconds

    @property
    def asked(self) -> bool:
        return time.monotonic() < self._until

    def transact(self, conn: Connection[Any]) -> None:
        if self.asked:
            super().transact(conn)


class Large(Asked):
    """A publisher of payloads as large as the library accepts. Some are inserted by SQL and even larger."""

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        for name in self.some(self.ledger.large, 3):
            if self.dice.random() < HUGE[0]:
                yield self.ledger.inserted(conn, name, HUGE[1])
            else:
                yield self.ledger.raised(conn, [name], self.dice.randint(1, 3), self.dice.randint(*LARGE))


class Leaping(Asked):
    """A publisher that keeps one transaction open until `let_go` is set. On request, another session leaves its ids
    `LEAP` behind. Only events of the aggregates that it has locked may wait for it."""

    def __init__(self, place: Workspace, ledger: Ledger, seed: str) -> None:
        super().__init__(place, ledger, seed)
        self.let_go = threading.Event()

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.leaping, 3))
        with self.place.connect(ROLE) as other:
            while not self.let_go.is_set():
                if self.asked:
                    self._until = 0.0
                    self.ledger.leap(other, LEAP)
                self.let_go.wait(LOOK)
        yield self.ledger.raised(conn, self.some(self.ledger.leaping, 3))


KINDS: Final = (Short, Short, Slow, Slow, Savepoints, Copies, Unlocked, Unlocked, HeldOpen, Large, Leaping)


def publishers(place: Workspace, ledger: Ledger, seed: int, two_phase: bool) -> list[ChaosPublisher]:
    """Return the publishers of a run, not started. The seed of each is derived from the run's."""
    kinds: list[type[ChaosPublisher]] = [*KINDS, *([TwoPhase] if two_phase else [])]
    return [kind(place, ledger, f"{seed} {kind.__name__} {number}") for number, kind in enumerate(kinds)]


def stop(all_of_them: Sequence[ChaosPublisher], wait: Callable[[float], object]) -> None:
    """Stop publishers and wait up to `JOIN` seconds for all of them, with `wait` as the pause."""
    for each in all_of_them:
        each.stopping.set()
    until = time.monotonic() + JOIN
    while any(each.is_alive() for each in all_of_them) and time.monotonic() < until:
        wait(0.05)


def resolve(conn: Connection[Any], schema: str, prefix: str) -> None:
    """Commit the prepared transactions with this prefix. The connection must be outside a transaction."""
    for gid in statements.prepared(conn, schema, prefix):
        conn.tpc_commit(gid)
