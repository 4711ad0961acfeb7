"""A node whose processes end while their handlers run: only a death that nobody asked for makes suspects."""

import os
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest
from waiting import eventually

from partbox import Event, Outbox
from partbox.settings import load
from partbox.supervisor.membership import Membership, RegisteredProcess
from partbox.supervisor.supervisor import Supervisor
from partbox.worker.slot import STOPPING, Slot

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
            return child.pid if child is not None and child.update_signs().handler_seconds is not None else 0

        return eventually(busy)

    def charges(self) -> list[tuple[int, bool]]:
        return self.conn.execute("select attempts, started_at is not null from partbox.parked").fetchall()

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
            node.join(120)


@pytest.fixture
def rig(dsn, conn) -> Iterator[Node]:
    made = Node(dsn, conn)
    yield made
    made.close()


@pytest.mark.thorough
def test_a_sigkill_of_a_process_charges_its_events_and_a_kill_of_the_node_withdraws_the_next_charge(rig):
    node = rig.start()
    pid = rig.runs(node)
    os.kill(pid, signal.SIGKILL)
    rig.runs(node, but=pid)
    assert suspects(rig.conn) > 0
    assert rig.charges() == [(1, True)]

    node.kill()
    node.join(120)
    assert not node.running
    assert rig.charges() == [(0, False)]


@pytest.fixture
def membership(dsn) -> Iterator[Membership]:
    made = Membership(load(dsn=dsn), "default", lambda: dsn)
    made.open()
    yield made
    made.close()


@pytest.fixture
def owner(membership, conn) -> RegisteredProcess:
    """A process that owns every partition."""
    ward = RegisteredProcess(Slot.create_local(), os.getpid())
    membership.tick([ward])
    conn.execute("update partbox.partition set owner = %s", [ward.slot.instance])
    return ward


def suspects(conn: psycopg.Connection) -> int:
    ((count,),) = conn.execute("select count(*) from partbox.partition where suspect_until_id is not null")
    return count


def test_a_process_that_was_told_to_end_makes_nothing_suspect_whoever_told_it(membership, owner, conn):
    owner.slot[STOPPING] = 1.0  # as the signal SIGTERM does, and a handler that was given up
    membership.bury([owner])
    assert suspects(conn) == 0


def test_a_process_that_ends_without_being_told_makes_its_partitions_suspect(membership, owner, conn):
    membership.bury([owner])
    assert suspects(conn) == 256


@pytest.mark.parametrize("vouched", [True, False])
def test_the_first_tick_of_a_stop_records_it_for_a_silent_process_too(membership, owner, conn, vouched):
    """Its node may be gone before it could bury it."""
    owner.is_draining, owner.is_vouched = True, vouched
    membership.tick([owner])
    assert conn.execute("select draining from partbox.instance").fetchall() == [(True,)]
