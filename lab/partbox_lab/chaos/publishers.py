"""The publishers, each in a thread with a connection and a habit of its own."""

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
DOOMED = 0.1  # of all transactions; they are rolled back after they have published
RETRY = 0.2  # seconds until a connection that was lost is opened again
JOIN = 15.0
LOOK = 0.05  # seconds
LARGE: Final = (100_000, 1_000_000)  # bytes
HUGE: Final = (0.1, 5_000_000)  # probability, and bytes
LEAP: Final = 1_200_000  # ids: more than a late range may be long
LOCK_TIMEOUT = "5s"  # a prepared transaction whose end was lost would hold its locks until somebody resolves it


class ChaosPublisher(threading.Thread):
    """Publishes until told to stop; `interrupted` counts transactions whose outcome is unknown, `refused` those that
    the server had no room for."""

    pause = (0.01, 0.05)
    """Seconds between two transactions."""
    lingers = False
    """Its transactions stay open for a while."""

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
            conn.execute("select set_config('synchronous_commit', 'on', false)")
            conn.execute("select set_config('lock_timeout', %s, false)", [LOCK_TIMEOUT])
            self.begin(conn)
            while not self.stopping.wait(self.dice.uniform(*self.pause)):
                if not self._held and time.monotonic() > self._rests_until:
                    self.transact(conn)

    def hold(self, held: bool) -> None:
        """Begin no transaction for now, or go on."""
        self._held = held

    def rest(self, seconds: float) -> None:
        """Begin no transaction for so long."""
        self._rests_until = time.monotonic() + seconds

    def begin(self, conn: Connection[Any]) -> None:
        """Prepare each new connection."""

    def transact(self, conn: Connection[Any]) -> None:
        """Run one transaction."""
        doomed = self.dice.random() < DOOMED
        events: list[LoggedEvent] = []
        with conn.transaction(force_rollback=doomed) as ended:
            for published in self.steps(conn):
                events.extend(published)
        if ended.status == ended.Status.FAILED:  # lost in the rollback of a savepoint, of which psycopg only warns
            raise psycopg.OperationalError("the connection was lost before the commit")
        if doomed:
            self.ledger.declined(len(events))
        else:
            self.ledger.committed(events)

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        """Publish the events of one transaction, a list at a time."""
        raise NotImplementedError

    def some(self, names: Sequence[str], most: int) -> list[str]:
        return self.dice.sample(names, self.dice.randint(1, most))


class Short(ChaosPublisher):
    """A few aggregates under their locks."""

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.names, 5), self.dice.choice((1, 1, 2)))


class Slow(ChaosPublisher):
    """The same, slow to commit: others wait for its locks, or commit higher ids before it."""

    lingers = True

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.names, 2))
        self.stopping.wait(self.dice.uniform(0.02, 0.4))
        yield self.ledger.published(conn, [(None, None)])


class Savepoints(ChaosPublisher):
    """Rolls back some of its savepoints. Names rise, so that locks are taken in one order."""

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
    """Many events at once: the more by COPY, the fewer by one INSERT."""

    pause = (1.0, 3.0)

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.names, 40), self.dice.randint(2, 8))


class Unlocked(ChaosPublisher):
    """Takes no lock: aggregates that others publish to at the same time, and events without one."""

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        names = [*(f"free-{number}" for number in range(10)), None]
        for _ in range(self.dice.randint(1, 4)):
            yield self.ledger.published(conn, [(self.dice.choice(names), None)])


class TwoPhase(ChaosPublisher):
    """Prepares, waits, and then commits or rolls back; leftovers of a lost connection are committed later."""

    pause = (0.05, 0.3)
    lingers = True
    _number = 0

    @property
    def prefix(self) -> str:
        return self.place.named("prepared ")

    def begin(self, conn: Connection[Any]) -> None:
        resolve(conn, self.place.schema, self.prefix)
        conn.autocommit = False

    def transact(self, conn: Connection[Any]) -> None:
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
    """A write transaction that is held open, idle, while everything else goes on."""

    pause = (0.1, 1.0)
    lingers = True

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        yield self.ledger.raised(conn, self.some(self.ledger.held, 3))
        self.stopping.wait(self.dice.uniform(2.0, 8.0))
        yield self.ledger.raised(conn, self.some(self.ledger.held, 3))


class Asked(ChaosPublisher):
    """Publishes only while asked to."""

    _until = 0.0

    def ask(self, seconds: float) -> None:
        """Publish for this many seconds."""
        self._until = time.monotonic() + seconds

    @property
    def asked(self) -> bool:
        return time.monotonic() < self._until

    def transact(self, conn: Connection[Any]) -> None:
        if self.asked:
            super().transact(conn)


class Large(Asked):
    """Large events, as large as a publisher takes them; now and then one that only SQL lets through."""

    def steps(self, conn: Connection[Any]) -> Iterator[list[LoggedEvent]]:
        for name in self.some(self.ledger.large, 3):
            if self.dice.random() < HUGE[0]:
                yield self.ledger.inserted(conn, name, HUGE[1])
            else:
                yield self.ledger.raised(conn, [name], self.dice.randint(1, 3), self.dice.randint(*LARGE))


class Leaping(Asked):
    """Keeps a write transaction open while the ids run far ahead of it, until everything else is delivered.

    Nothing but the aggregates that it has locked may wait for it.
    """

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
    """All publishers, not started yet."""
    kinds: list[type[ChaosPublisher]] = [*KINDS, *([TwoPhase] if two_phase else [])]
    return [kind(place, ledger, f"{seed} {kind.__name__} {number}") for number, kind in enumerate(kinds)]


def stop(all_of_them: Sequence[ChaosPublisher], wait: Callable[[float], object]) -> None:
    """Make them end their transactions, and wait for that."""
    for each in all_of_them:
        each.stopping.set()
    until = time.monotonic() + JOIN
    while any(each.is_alive() for each in all_of_them) and time.monotonic() < until:
        wait(0.05)


def resolve(conn: Connection[Any], schema: str, prefix: str) -> None:
    """Commit the transactions that are still prepared."""
    for gid in statements.prepared(conn, schema, prefix):
        conn.tpc_commit(gid)
