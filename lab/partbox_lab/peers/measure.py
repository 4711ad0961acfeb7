"""Measurements of one peer in one order: publishing, draining, latency at a rate, and disorder. Each run gets a
database."""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg

from partbox.errors import PartboxError
from partbox_lab.bench import statements
from partbox_lab.bench.cpu import between, by_process
from partbox_lab.bench.rounds import latencies
from partbox_lab.bench.sender import schedule
from partbox_lab.peers.figures import disorder, drain_rate
from partbox_lab.peers.peer import KEYS, Database, Order, Peer, PeerRun, Sample
from partbox_lab.peers.processes import PeerProcesses, working
from partbox_lab.peers.server import PeerServer
from partbox_lab.sql import query

BULK = 1_000  # events per transaction
# Connections that publish at a rate. KEYS is a multiple, so that each key belongs to one connection.
PUBLISHERS = 4
WARM = 20  # events before the counted ones
FIRST = 1_000_000  # the number of the first counted event
STALLED = 30.0  # seconds without progress
FEW_KEYS, OF_A_KEY = 20, 300  # keys and events of each, for disorder
# A peer with at most this share gets a tenth of the events for disorder.
SLOW = 0.05
GRACE = 5.0  # seconds for the last events of a run at a rate


@dataclass(frozen=True, slots=True)
class PublishResult:
    """Events per second by one connection, and bytes of WAL per event."""

    single: float
    bulk: float
    wal_single: float
    wal_bulk: float


@dataclass(frozen=True, slots=True)
class DrainResult:
    """A drained backlog. All values except the rate are per event."""

    processes: int
    rate: float
    wal: float
    dead: float
    cpu_workers: float  # microseconds
    cpu_server: float | None  # microseconds, None if its processes cannot be read


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from commit to handler, at a rate of events per second."""

    rate: int
    reached: float  # published events per second
    values: list[float]
    missing: int  # events not handled 5 s after the last commit

    @property
    def is_slow(self) -> bool:
        """True if the publisher reached less than 90 % of the rate."""
        return self.reached < 0.9 * self.rate


def published(place: PeerServer, peer: Peer, order: Order, events: int) -> PublishResult:
    """Publish a tenth of the events one per transaction, and all of them in bulk."""
    run = PeerRun(order, 1)
    with place.database() as database, psycopg.connect(database.dsn) as conn:
        peer.prepare(database, run)
        # The first events pay for filling caches, so they do not count.
        _publish(conn, peer, run, BULK, BULK)
        start = _wal(database.conn)
        single = _publish(conn, peer, run, max(events // 10, 10), 1)
        halfway = _wal(database.conn)
        bulk = _publish(conn, peer, run, events, BULK)
        ended = _wal(database.conn)
    return PublishResult(single, bulk, (halfway - start) / max(events // 10, 10), (ended - halfway) / events)


def drained(place: PeerServer, peer: Peer, run: PeerRun, events: int) -> DrainResult:
    """Drain a backlog with the processes of the run. The drain ends when the database agrees that nothing is left."""
    with place.database() as database:
        peer.prepare(database, run)
        with psycopg.connect(database.dsn) as conn:
            _publish(conn, peer, run, events, BULK)
        database.conn.execute(query("peers_vacuum", ""))
        with working(peer, database, run) as workers:

            def cpu() -> tuple[dict[int, float], dict[int, float]]:
                return by_process(workers.pids()), by_process(place.pids(database.conn))

            log, rows = _wal(database.conn), _dead(database.conn)
            before, began = cpu(), time.monotonic_ns()
            workers.go()
            ended = _wait_done(workers, peer, run, database, events)
            log, after = _wal(database.conn) - log, cpu()
            rate = drain_rate(workers.counts, events, began, ended)
        _wait_alone(database)
        # Server processes flush their statistics when they end.
        rows = _dead(database.conn) - rows
    used, used_server = (between(*each) / events * 1e6 for each in zip(before, after, strict=True))
    known = used_server if place.described.local else None
    return DrainResult(run.processes, rate, log / events, rows / events, used, known)


def latency(place: PeerServer, peer: Peer, run: PeerRun, rate: int, seconds: float) -> Latency:
    """Publish at a rate, one event per transaction, and note when the handlers are called."""
    with place.database() as database:
        peer.prepare(database, run)
        with working(peer, database, run) as workers:
            workers.go()
            _warm(workers, peer, run, database)
            began = time.monotonic()
            sent = _at_rate(peer, run, database, rate, seconds)
            taken = time.monotonic() - began
            _wait(lambda: sent.keys() <= workers.seen.keys(), workers, GRACE)
        values = latencies(sent, workers.seen)
    if not values:
        raise PartboxError("no event was handled")
    return Latency(rate, len(sent) / max(taken, 1e-9), values, len(sent) - len(values))


def disordered(place: PeerServer, peer: Peer, order: Order) -> float:
    """Return the percentage of events of a few keys that two processes handle after a later event of their key."""
    run = PeerRun(order, 2, watched=True)
    turns = OF_A_KEY if peer.orders[order] > SLOW else OF_A_KEY // 10
    samples = [Sample(key + KEYS * turn) for turn in range(turns) for key in range(FEW_KEYS)]
    with place.database() as database:
        peer.prepare(database, run)
        with psycopg.connect(database.dsn) as conn:
            for each in samples:
                peer.publish(conn, [each], run)
                conn.commit()
        with working(peer, database, run) as workers:
            workers.go()
            _wait_done(workers, peer, run, database, len(samples))
            _wait(lambda: len(workers.seen) >= len(samples), workers, GRACE)
    return disorder({each.number: each.key for each in samples}, workers.seen)


def _publish(conn: psycopg.Connection[Any], peer: Peer, run: PeerRun, events: int, at_once: int) -> float:
    """Publish events, `at_once` per transaction, and return the events per second."""
    pages = [
        [Sample(number) for number in range(first, min(first + at_once, events))] for first in range(0, events, at_once)
    ]
    began = time.perf_counter()
    for page in pages:
        peer.publish(conn, page, run)
        conn.commit()
    return events / (time.perf_counter() - began)


def _wait_done(workers: PeerProcesses, peer: Peer, run: PeerRun, database: Database, events: int) -> int:
    """Wait until all events are handled and the database agrees. Return that time in nanoseconds."""
    handled, since = 0, time.monotonic()
    while True:
        workers.check()
        if (now := workers.handled) >= events and peer.is_done(database.conn, run):
            return time.monotonic_ns()
        if now > handled:
            handled, since = now, time.monotonic()
        if time.monotonic() - since > STALLED:
            raise PartboxError(f"no progress for {STALLED:g} s after {handled:,} of {events:,} events")
        time.sleep(0.01)


def _wait_alone(database: Database) -> None:
    """Wait until no other session is connected."""
    others = query("peers_others", "")
    end = time.monotonic() + GRACE
    while database.conn.execute(others).fetchone() is not None and time.monotonic() < end:
        time.sleep(0.05)


def _warm(workers: PeerProcesses, peer: Peer, run: PeerRun, database: Database) -> None:
    """Publish some events, wait until they are handled, and rest for a moment."""
    with psycopg.connect(database.dsn) as conn:
        for number in range(WARM):
            peer.publish(conn, [Sample(number)], run)
            conn.commit()
    if not _wait(lambda: all(number in workers.seen for number in range(WARM)), workers, STALLED):
        raise PartboxError(f"the first {WARM} events were not handled within {STALLED:g} s")
    time.sleep(1)


def _wait(check: Callable[[], bool], workers: PeerProcesses, timeout: float) -> bool:
    end = time.monotonic() + timeout
    while not check():
        workers.check()
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _at_rate(peer: Peer, run: PeerRun, database: Database, rate: int, seconds: float) -> dict[int, int]:
    """Publish events at a rate and return the time at which each commit was sent, in nanoseconds. The times are random,
    so that no poller falls into step."""
    began = time.monotonic() + 0.1
    due = [(number, began + at) for number, at in enumerate(schedule(rate, seconds, random.Random(rate)), FIRST)]
    sent: dict[int, int] = {}

    def publish(mine: Sequence[tuple[int, float]]) -> None:
        with psycopg.connect(database.dsn) as conn:
            for number, at in mine:
                time.sleep(max(0.0, at - time.monotonic()))
                peer.publish(conn, [Sample(number)], run)
                sent[number] = time.monotonic_ns()
                conn.commit()

    with ThreadPoolExecutor(PUBLISHERS) as threads:
        for publisher in [threads.submit(publish, due[each::PUBLISHERS]) for each in range(PUBLISHERS)]:
            publisher.result()
    return sent


def _wal(conn: psycopg.Connection[Any]) -> float:
    """Return the bytes of WAL since the server was created."""
    return statements.wal(conn, "")


def _dead(conn: psycopg.Connection[Any]) -> int:
    """Return the row versions that updates and deletes have left in this database."""
    ((found,),) = conn.execute(query("peers_dead", "")).fetchall()
    return int(found)
