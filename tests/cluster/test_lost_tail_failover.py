"""A failover that loses its tail: what was published, delivered, saved and claimed in the last seconds never was.

The standby is behind a wire that passes nothing any more, so nothing of the tail waits in a socket for it. It is
promoted without a restartpoint since the schema was made. Ids and transaction ids of the tail are drawn again.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hanging_proxy import Proxy, hanging_proxy
from ledger import Ledger, at_work
from node import Node
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from servers import OwnServer, migrated, new_standby, promote
from waiting import eventually

from partbox import Event, Outbox
from partbox.doctor.doctor import examine_outbox
from partbox.doctor.limits import limits_of
from partbox.embedded.server import Server
from partbox.settings import load
from partbox_lab.chaos.network import HANG, HOST, Network, Wire
from partbox_lab.chaos.oracle import HistoryVerdict, LoggedEvent, judge

pytestmark = pytest.mark.every_version("a standby is promoted")

QUICK = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 20, "handler_timeout": 60, "retry": "fixed:0.2"}
KINDS = ("Step", "AsyncStep", "Listed", "Effect")
SHARED = slice(40)
"""The accounts that publishers share; those after it belong to the lost tail."""


@dataclass
class Pair:
    """A primary, and its standby at the other end of a wire. `proxy` leads to the one that is to be used."""

    server: Server
    standby: Path
    network: Network
    wire: Wire
    proxy: Proxy
    dsns: tuple[str, str]

    def drawn(self) -> int:
        with psycopg.connect(self.proxy.dsn) as conn:
            ((drawn,),) = conn.execute("select partbox.drawn()").fetchall()
        return int(drawn)

    def cut_off(self) -> None:
        """Wait until the standby has all that there is. From then on nothing reaches it."""
        with psycopg.connect(self.dsns[0], autocommit=True) as conn:
            (written,) = conn.execute("select pg_current_wal_lsn()::text").fetchone() or ("",)
        with psycopg.connect(self.dsns[1], autocommit=True) as conn:
            replayed = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
            eventually(lambda: conn.execute(replayed, [written]).fetchone() == (True,))
        self.network.set(self.wire, HANG)

    def fail_over(self) -> None:
        """The primary is killed, and the standby takes its place."""
        self.server.kill()
        promote(self.standby)
        self.proxy.lead_to(self.dsns[1])


@pytest.fixture
def pair(own_server: OwnServer, folder: Path) -> Iterator[Pair]:
    server = own_server.server
    primary = conninfo_to_dict(server.dsn)
    network = Network(str(primary["host"]), int(str(primary["port"])))
    network.start()
    try:
        wire = network.wire()
        with new_standby(server, folder, f"host={HOST} port={wire.port} user=postgres") as standby:
            dsn = migrated(server.dsn, "failing")
            with hanging_proxy(dsn) as proxy:
                yield Pair(server, standby, network, wire, proxy, (dsn, make_conninfo(dsn, host=str(standby))))
    finally:
        network.stop()


class Publisher(threading.Thread):
    """Publishes until it is stopped, on a new connection if need be; `committed`: what it was told to be there."""

    def __init__(self, ledger: Ledger, seed: int) -> None:
        super().__init__(daemon=True)
        self._ledger, self._random = ledger, random.Random(seed)
        self.committed: list[str] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            with suppress(psycopg.OperationalError), psycopg.connect(self._ledger.dsn, autocommit=True) as conn:
                while not self.stopping.wait(0.02):
                    self._transact(conn)

    def _transact(self, conn: psycopg.Connection[Any]) -> None:
        kind = self._random.choice(KINDS)
        fails = self._random.choice((1, 2)) if kind != "Listed" and self._random.random() < 0.05 else 0
        names = self._random.sample(self._ledger.names[SHARED], 4)
        later = Event("Step", {"seq": None}, deliver_after=self._random.random())
        with conn.transaction():
            (delayed,) = self._ledger.outbox.publish_many(conn, [later])
            ids = self._ledger.publish(conn, names, self._random.choice((1, 2)), kind, fails=fails)
        self.committed += [str(delayed), *ids]


@contextmanager
def publishing(ledger: Ledger) -> Iterator[list[Publisher]]:
    with at_work([Publisher(ledger, seed) for seed in range(2)]) as publishers:
        yield publishers


def moved_on(cluster: Any, publishers: list[Publisher], count: int = 20) -> None:
    """Wait until each has published more, and the last of it is delivered.

    The last one is of an account. A delayed event may be in any partition, also in one that is not read as long as a
    handler of its lost ownership runs: that of a waiting event.
    """
    for each in publishers:
        so_far = len(each.committed)
        eventually(lambda each=each, so_far=so_far: len(each.committed) > so_far + count)
        last = each.committed[-1]
        eventually(lambda last=last: last in cluster.journal.ended())


def joined(cluster: Any, name: str) -> Node:
    flags, given = ["--processes", "1", "--concurrency", "6"], QUICK | {"dsn": cluster.dsn}
    node = Node(name, cluster.folder, cluster.journal.folder, flags, given, "lost_tail_app:outbox")
    cluster.nodes.append(node)
    return node


@contextmanager
def embedded(pair: Pair) -> Iterator[set[str]]:
    """A worker in this process, in another subscription, by a DSN that names both servers; what it has seen."""
    hosts = ",".join(str(conninfo_to_dict(dsn)["host"]) for dsn in reversed(pair.dsns))
    outbox = Outbox(make_conninfo(pair.dsns[0], host=hosts, target_session_attrs="read-write"), lease=2, heartbeat=0.3)
    outbox.subscriptions.create("audit")
    seen: set[str] = set()
    outbox.register(lambda event: seen.add(str(event.event_id)), "*", subscription="audit")
    with outbox.worker(subscription="audit"):
        yield seen


def causes(dsn: str) -> list[str]:
    settings = load(dsn=dsn)
    return [each.cause for each in examine_outbox(lambda: dsn, settings, limits_of(settings, 60.0)).findings]


def history(cluster: Any, published: list[LoggedEvent], verdict: HistoryVerdict) -> str:
    """The events and the calls of the first aggregate whose order was broken."""
    its = {one.aggregate for one in verdict.too_early[:1]}
    calls = cluster.journal.deliveries(lambda one: one.aggregate in its)
    return "\n".join([*map(str, (one for one in published if one.aggregate in its)), *map(str, calls)])


@pytest.mark.thorough
def test_every_existing_event_is_delivered_after_a_failover_that_lost_the_tail_of_the_log(new_cluster, pair, caplog):
    with psycopg.connect(pair.dsns[0], autocommit=True) as conn:
        conn.execute("create table effect (event uuid)")
    cluster = new_cluster(pair.proxy.dsn)
    ledger, gate = cluster.ledger, cluster.gate()
    stays, leaves = joined(cluster, "stays"), joined(cluster, "leaves")
    with embedded(pair) as seen:
        with publishing(ledger) as publishers:
            cluster.balanced(2)
            moved_on(cluster, publishers)
            said = causes(pair.dsns[0])
            pair.cut_off()
            moved_on(cluster, publishers)
            joins = joined(cluster, "joins")
            cluster.balanced(3)
            assert leaves.stop() == 0
            cluster.balanced(2)
            with psycopg.connect(cluster.dsn) as conn:
                waiting = ledger.publish(conn, ledger.names[40:42], gate=str(gate))
                waiting += ledger.publish(conn, ledger.names[42:44], gate=str(gate), fails=1)
                dead = ledger.publish(conn, ledger.names[44:60], event_type="Mortal")
            cluster.running(waiting)
            eventually(lambda: set(dead) <= cluster.journal.ended())
            moved_on(cluster, publishers)
            drawn = pair.drawn()
            pair.fail_over()
            moved_on(cluster, publishers)
            ledger.publish_now(ledger.names[40:60], 2)
            gate.touch()
            while pair.drawn() <= drawn:  # all ids of the lost tail are drawn again
                ledger.publish_now(ledger.names[SHARED])
            moved_on(cluster, publishers, 10)
        cluster.reconnect()
        cluster.delivered()
        cluster.balanced(2)

    published = ledger.published()
    existing = {one.event for one in published}
    lost = {id for each in publishers for id in each.committed} - existing
    assert lost & cluster.journal.ended(), "the standby lacked commits, which had been delivered"
    assert existing <= seen
    verdict = judge(published, cluster.journal.deliveries(lambda one: one.event in existing))
    verdict.backwards.clear()  # progress is taken back too: an owner repeats a suffix
    assert verdict.wrong() == {}, history(cluster, published, verdict)
    conn = cluster.owners.conn
    effects = conn.execute("select count(*) from partbox.record where event_type = 'Effect'").fetchone()
    assert conn.execute("select count(distinct event) from effect").fetchone() == effects
    assert conn.execute("select count(*) from effect").fetchone() == effects
    eventually(lambda: set(causes(pair.dsns[1])) <= set(said))
    assert caplog.text.count("the server's history went back") == 1, "alone, so not buried"
    assert "is unknown to the database" in joins.log
    assert "rebase" not in stays.log + joins.log
