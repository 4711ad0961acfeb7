"""Events that kill their process, and innocents that ran beside them."""

import os
import signal
from collections import Counter
from typing import Any
from uuid import UUID

import psutil
import psycopg
import pytest
from conftest import FAST
from journal import Delivery
from node import Node
from oracle import judge
from waiting import eventually

from partbox import Event

QUICK = {"retry": "fixed:0.1", "max_attempts": 3, "drain_timeout": 10}


class Ward:
    """A cluster of `poison_app` whose handlers may die, and what became of their events."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.names = cluster.ledger.names[:50]
        self.poison: set[str] = set()
        self.conn = cluster.owners.conn

    def node(self, name: str = "node", processes: int = 3, concurrency: int = 4, **settings: Any) -> Node:
        cluster = self.cluster
        flags = ["--processes", str(processes), "--concurrency", str(concurrency)]
        given = FAST | QUICK | {"dsn": cluster.dsn} | settings
        cluster.nodes.append(
            Node(name, cluster.folder, cluster.journal.folder, flags, given, application="poison_app:outbox")
        )
        return cluster.nodes[-1]

    def publish(self, rounds: int, event_type: str = "Step", **payload: Any) -> None:
        """So many events of each aggregate, a round after the other."""
        for _ in range(rounds):
            self.publish_one_each(event_type, **payload)

    def publish_one_each(self, event_type: str, **payload: Any) -> None:
        with psycopg.connect(self.cluster.dsn) as conn:
            self.cluster.ledger.publish(conn, self.names, event_type=event_type, **payload)

    def publish_poison(self, event_type: str, name: str) -> str:
        with psycopg.connect(self.cluster.dsn) as conn:
            (event,) = self.cluster.ledger.publish(conn, [name], event_type=event_type)
        self.poison.add(event)
        return event

    def publish_keyless(self, count: int, event_type: str = "Step", **payload: Any) -> list[str]:
        events = [Event(event_type, {"seq": number, **payload}) for number in range(count)]
        with psycopg.connect(self.cluster.dsn) as conn:
            return [str(id) for id in self.cluster.ledger.outbox.publish_many(conn, events)]

    def parked(self) -> list[tuple[Any, ...]]:
        """(event, state, attempts, last error) of every parked row."""
        return self.conn.execute(
            "select r.event_id::text, k.state, k.attempts, k.last_error"
            " from partbox.parked k join partbox.record r on r.id = k.record_id order by k.record_id"
        ).fetchall()

    def dead(self) -> dict[str, tuple[int, str]]:
        return {event: (attempts, error) for event, state, attempts, error in self.parked() if state == "dead"}

    def charged(self) -> int:
        """How many rows have a start noted."""
        row = self.conn.execute("select count(*) from partbox.parked where started_at is not null").fetchone()
        return int(row[0])

    def suspects(self) -> int:
        """How many partitions are suspect."""
        row = self.conn.execute("select count(*) from partbox.partition where suspect_until_id is not null").fetchone()
        return int(row[0])

    def settled(self, timeout: float = 60) -> None:
        """Wait until everything but the poison is delivered, and nothing but dead poison is parked."""

        def all_done() -> bool:
            missing = {one.event for one in self.cluster.ledger.published()} - self.cluster.journal.ended()
            assert missing <= self.poison, f"{len(missing - self.poison)} events are not delivered"
            assert all(state == "dead" for _, state, _, _ in self.parked()), self.parked()[:5]
            assert self.dead().keys() == self.poison
            return True

        eventually(all_done, timeout, 0.1)

    def wrong(self) -> dict[str, int]:
        """What the oracle has against the deliveries of what is not poison; order is asked by aggregates only."""

        def ordered(one: Any) -> bool:
            return one.event not in self.poison and one.aggregate is not None

        published = [one for one in self.cluster.ledger.published() if ordered(one)]
        return judge(published, self.cluster.journal.deliveries(ordered)).wrong()

    def deliveries(self, event: str) -> list[Delivery]:
        return self.cluster.journal.deliveries(lambda one: one.event == event)


@pytest.fixture
def ward(cluster):
    return Ward(cluster)


def test_poison_ends_dead_and_everything_else_is_delivered_in_order(ward):
    """1,000 events of 50 aggregates, one that kills its process and one that never returns among them."""
    ward.publish(10)
    kill = ward.publish_poison("Kill", ward.names[0])
    hang = ward.publish_poison("Hang", ward.names[1])
    ward.publish(10)
    node = ward.node(processes=3, handler_timeout=1)
    ward.settled()

    assert ward.dead() == {
        kill: (3, "its process died, 3 times that it ran"),
        hang: (3, "TimeoutError: the handler ran longer than its timeout of 1 s"),
    }
    assert ward.wrong() == {}
    assert len(ward.cluster.ledger.published()) == 1_002
    # The first to take it cannot know; each later run is an attempt.
    assert [one.attempt for one in ward.deliveries(kill)] == [1, 1, 2, 3]
    assert [one.attempt for one in ward.deliveries(hang)] == [1, 2, 3]
    ward.cluster.balanced(3)
    pids = set(ward.cluster.owners.instances("node").values())
    assert len(pids) == 3
    assert all(psutil.pid_exists(pid) for pid in pids)
    assert node.stop() == 0
    assert ward.suspects() == 0


def test_innocents_beside_poison_are_not_dead_lettered_even_with_two_attempts(ward):
    """One process of four handlers: while the poison runs, three others of its partition or another do."""
    ward.names = ward.names[:12]
    ward.publish(1, seconds=0.2)
    kill = ward.publish_poison("Kill", ward.names[5])
    ward.publish(2, seconds=0.2)
    node = ward.node(processes=1, max_attempts=2)
    ward.settled()

    assert ward.dead() == {kill: (2, "its process died, 2 times that it ran")}
    assert ward.wrong() == {}
    beside = {
        one.event
        for one in ward.cluster.journal.deliveries()
        if one.event != kill and any(one.pid == death.pid and one.end is None for death in ward.deliveries(kill))
    }
    assert beside
    assert node.stop() == 0


@pytest.mark.parametrize("event_type", ["Step", "Listed", "Effect"])
def test_a_process_killed_under_a_backlog_of_harmless_events_leaves_no_trace(ward, event_type):
    ward.conn.execute("create table effect (event uuid primary key)")
    ward.publish(30, event_type, seconds=0.002)
    keyless = ward.publish_keyless(300, event_type, seconds=0.002)
    node = ward.node(processes=2, max_attempts=2)
    for _ in range(3):
        ward.cluster.balanced(2)
        reached = len(ward.cluster.journal.ended())
        eventually(lambda before=reached: len(ward.cluster.journal.ended()) > before + 100, 40)
        os.kill(min(ward.cluster.owners.instances("node").values()), signal.SIGKILL)
    ward.settled()

    assert ward.wrong() == {}
    assert set(keyless) <= ward.cluster.journal.ended()
    assert ward.parked() == []
    ward.cluster.balanced(2)
    assert node.stop() == 0
    assert ward.suspects() == 0
    if event_type == "Effect":
        assert ward.conn.execute("select count(*) from effect").fetchone() == (1_800,)
