"""A node whose processes end while their handlers run: only a death that nobody asked for makes suspects."""

import os
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
from waiting import eventually

from partbox import Event, Outbox
from partbox.supervisor.supervisor import Supervisor

SETTINGS = {"drain_timeout": 0.2, "handler_timeout": None, "lease": 20, "heartbeat": 0.1}


class Node:
    """A node of one process whose only handler never ends."""

    def __init__(self, dsn: str, conn: psycopg.Connection) -> None:
        self.conn = conn
        self.outbox = Outbox(dsn, **SETTINGS)
        self.outbox.on("Endless")(lambda event: time.sleep(3_600))
        self.nodes: list[Supervisor] = []
        with conn.transaction():
            self.outbox.publish(conn, Event("Endless", 1, aggregate_type="Key", aggregate_id="k"))

    def start(self) -> Supervisor:
        self.nodes.append(self.outbox.supervisor(processes=1))
        self.nodes[-1].start()
        return self.nodes[-1]

    def runs(self, node: Supervisor, but: int = 0) -> int:
        """The pid of its process, once the handler runs in it."""

        def busy() -> int:
            child = next((each for each in node.children if each.pid != but), None)
            return child.pid if child is not None and child.signs().handler is not None else 0

        return eventually(busy, 60)

    def suspects(self) -> int:
        ((count,),) = self.conn.execute("select count(*) from partbox.partition where suspect_until_id is not null")
        return count

    def charges(self) -> list[tuple[int, bool]]:
        return self.conn.execute("select attempts, started_at is not null from partbox.parked").fetchall()

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
            node.join(30)


@pytest.fixture
def rig(dsn, conn) -> Iterator[Node]:
    made = Node(dsn, conn)
    yield made
    made.close()


def test_a_process_that_gets_a_sigterm_and_a_node_that_is_killed_accuse_nobody_a_sigkill_of_a_process_does(rig):
    node = rig.start()
    pid = rig.runs(node)
    os.kill(pid, signal.SIGTERM)
    pid = rig.runs(node, but=pid)
    assert (rig.suspects(), rig.charges()) == (0, [])

    os.kill(pid, signal.SIGKILL)
    rig.runs(node, but=pid)
    assert rig.suspects() > 0
    assert rig.charges() == [(1, True)]

    node.kill()
    node.join(30)
    assert not node.running
    assert rig.charges() == [(0, False)]
