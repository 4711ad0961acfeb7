"""A cluster whose handlers end badly, and the fate of their events."""

from collections.abc import Callable
from typing import Any

import psycopg
from node import Node
from waiting import eventually

from partbox import Event
from partbox_lab.chaos.journal import HandlerCall
from partbox_lab.chaos.oracle import judge

SPARE = 12
"""Its processes die often."""
QUICK = {"lease": 2, "heartbeat": 0.3, "drain_timeout": 10, "retry": "fixed:0.1", "max_attempts": 3}


class Ward:
    """A cluster of `poison_app` whose handlers may die, and the fate of their events."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.names = cluster.ledger.names[:50]
        self.poison: set[str] = set()
        self.conn = cluster.owners.conn

    def node(self, name: str = "node", processes: int = 3, concurrency: int = 4, **settings: Any) -> Node:
        cluster = self.cluster
        flags = ["--processes", str(processes), "--concurrency", str(concurrency)]
        given = QUICK | {"dsn": cluster.dsn} | settings
        cluster.nodes.append(
            Node(
                name, cluster.folder, cluster.journal.folder, flags, given, application="poison_app:outbox", spare=SPARE
            )
        )
        return cluster.nodes[-1]

    def publish(self, rounds: int, event_type: str = "Step", **payload: Any) -> None:
        """Publish this many events of each aggregate, round by round."""
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
        """The number of parked rows with a start noted."""
        row = self.conn.execute("select count(*) from partbox.parked where started_at is not null").fetchone()
        return int(row[0])

    def suspects(self) -> int:
        """The number of suspect partitions."""
        row = self.conn.execute("select count(*) from partbox.partition where suspect_until_id is not null").fetchone()
        return int(row[0])

    def settled(self, timeout: float = 60, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until everything but the poison is delivered, and nothing but dead poison is parked."""

        def all_done() -> bool:
            meanwhile()
            missing = {one.event for one in self.cluster.ledger.published()} - self.cluster.journal.ended()
            assert missing <= self.poison, (
                f"{len(missing - self.poison)} are not delivered; parked: {self.parked()[:9]}"
            )
            assert all(state == "dead" for _, state, _, _ in self.parked()), self.parked()[:5]
            assert self.dead().keys() == self.poison
            return True

        eventually(all_done, timeout, 0.1, moves=lambda: len(self.cluster.journal.ended()))

    def wrong(self) -> dict[str, int]:
        """The violations in the deliveries of events that are not poison and have an aggregate."""

        def ordered(one: Any) -> bool:
            return one.event not in self.poison and one.aggregate is not None

        published = [one for one in self.cluster.ledger.published() if ordered(one)]
        return judge(published, self.cluster.journal.deliveries(ordered)).wrong()

    def deliveries(self, event: str) -> list[HandlerCall]:
        return self.cluster.journal.deliveries(lambda one: one.event == event)
