"""A disk of the server that is full while publishers publish and a node delivers, and that has room again."""

import random
import subprocess
import time
from contextlib import contextmanager

import psycopg
import pytest
from ledger import Publisher, at_work
from psycopg.conninfo import make_conninfo
from psycopg.errors import DiskFull
from servers import TEMPLATE, execute
from small_disk import small_disk
from waiting import eventually

from partbox import Event
from partbox.log_rate_limit import BURST, SPAN
from partbox.observe.logs.log_event import FULL_DISK

DAY = 86_400
LATER = 600
"""Events whose parked rows do not fit on the pages there are."""
FILLER = random.Random(7).randbytes(3_000).hex()
"""Makes the pages of the log run out soon; it cannot be compressed to nothing."""
KINDS = 4
"""Lines that a full disk may bring: reading, saving, transactions, heartbeats."""


class Stubborn(Publisher):
    """Tries again, as an application does, when the server has no room."""

    refused = 0

    def _transact(self, conn):
        try:
            super()._transact(conn)
        except DiskFull:
            self.refused += 1


@contextmanager
def stubborn(ledger, threads=2):
    with at_work([Stubborn(ledger, seed, filler=FILLER) for seed in range(threads)]) as publishers:
        yield publishers
    assert [each.error for each in publishers] == [None] * threads


@pytest.fixture
def disk():
    with small_disk(64) as disk:
        yield disk


@pytest.fixture
def cluster(disk, own_server, new_cluster):
    """A cluster without nodes yet, whose database is on the small disk; the WAL is elsewhere."""
    with psycopg.connect(own_server.dsn, autocommit=True) as conn:
        conn.execute(f"create tablespace small location '{disk.folder}'")
    execute(own_server.server.dsn, "create database small template {} tablespace small", TEMPLATE)
    return new_cluster(make_conninfo(own_server.dsn, dbname="small"))


def delayed(ledger, conn):
    """Publish events that are due in a day, in the transaction of `conn`; their ids."""
    keys = [f"later-{number}" for number in range(LATER)]
    events = [Event("Step", {"seq": 1}, aggregate_id=key, deliver_after=DAY) for key in keys]
    return {str(id) for id in ledger.outbox.publish_many(conn, events)}


def rise(publishers, count, what):
    """Wait until this number of each publisher has risen by so many."""
    before = [getattr(each, what) for each in publishers]
    eventually(lambda: all(getattr(each, what) >= of + count for each, of in zip(publishers, before, strict=True)))


def half_written(conn):
    """Accounts whose number, raised in the transaction of each event, is not that of their events."""
    return conn.execute(
        """select a.aggregate, a.seq, count(r.id) from partbox.chaos_account a
             left join partbox.record r on r.aggregate_id = a.aggregate group by a.aggregate, a.seq
           having count(r.id) <> a.seq"""
    ).fetchall()


def complaints(node):
    return [line for line in node.log.splitlines() if FULL_DISK in line]


def test_publishing_on_a_full_disk_fails_as_a_whole_and_all_goes_on_when_there_is_room_again(cluster, disk):
    ledger, conn = cluster.ledger, cluster.owners.conn
    node = cluster.node("node", lease=30)
    cluster.balanced(1)
    workers = node.workers()
    with stubborn(ledger) as publishers, psycopg.connect(cluster.dsn) as slow:
        rise(publishers, 1, "committed")
        # They need no room when they commit; whoever parks them does.
        later = delayed(ledger, slow)
        disk.fill()
        began = time.monotonic()
        with pytest.raises(DiskFull):
            ledger.publish_now(ledger.names, burst=20, filler=FILLER)
        slow.commit()
        eventually(lambda: [line for line in complaints(node) if "saving failed" in line])
        rise(publishers, 10, "refused")
        assert half_written(conn) == []
        disk.make_room()
        rise(publishers, 10, "committed")
        most = KINDS * (BURST + (time.monotonic() - began) / SPAN)
    eventually(lambda: scheduled(conn) == LATER, 40, moves=lambda: scheduled(conn))
    due(conn)
    eventually(lambda: later <= cluster.journal.ended(), 40, moves=lambda: len(cluster.journal.ended()))
    cluster.delivered()
    assert half_written(conn) == []
    assert not cluster.verdict().wrong()
    assert not cluster.verdict().repeats
    assert node.workers() == workers
    assert len(complaints(node)) <= most


@pytest.fixture
def short_of_wal(own_server):
    """A server whose WAL is on a small disk, and that disk."""
    server = own_server.server
    with small_disk(128) as disk:
        server.stop()
        server.options |= {"min_wal_size": "32MB", "max_wal_size": "64MB"}
        wal = server.data_folder / "pgdata" / "pg_wal"
        subprocess.run(["mv", wal, disk.folder / "wal"], check=True)
        wal.symlink_to(disk.folder / "wal")
        server.start()
        yield server, disk
        server.stop("immediate")
        wal.unlink()
        subprocess.run(["mv", disk.folder / "wal", wal], check=True)


def test_a_full_wal_disk_ends_the_server_and_all_goes_on_once_it_is_restarted_with_room(
    short_of_wal, own_server, new_cluster
):
    server, disk = short_of_wal
    cluster = new_cluster(own_server.dsn)
    node = cluster.node("node", lease=30)
    cluster.balanced(1)
    workers = node.workers()
    cluster.ledger.publish_now(cluster.ledger.names)
    disk.fill()
    with pytest.raises(psycopg.OperationalError):
        cluster.ledger.publish_now(cluster.ledger.names, burst=40, filler=FILLER)
    eventually(lambda: not server.is_running)
    said = (server.data_folder / "pgdata" / "server.log").read_text()
    assert "PANIC:  could not write to file" in said
    assert "shutting down due to startup process failure" in said, "it has tried to start by itself"
    disk.make_room()
    server.start()
    cluster.reconnect()
    cluster.ledger.publish_now(cluster.ledger.names)
    cluster.delivered()
    assert half_written(cluster.owners.conn) == []
    assert not cluster.verdict().wrong()
    assert node.workers() == workers


def scheduled(conn):
    return conn.execute("select count(*) from partbox.parked where state = 'scheduled'").fetchone()[0]


def due(conn):
    """Make what is delayed due, in the lock order of every writer."""
    with conn.transaction():
        conn.execute("select from partbox.partition order by subscription, partition for no key update")
        conn.execute("update partbox.parked set due_at = clock_timestamp() where due_at is not null")
        conn.execute("update partbox.partition set parked_version = parked_version + 1")
