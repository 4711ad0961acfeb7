"""A supervisor that is killed."""

import signal
import time

import pytest
from ledger import publishing
from waiting import eventually


@pytest.mark.thorough
def test_the_processes_of_a_killed_supervisor_release_and_end_by_themselves(cluster):
    killed = cluster.node("killed", processes=1, lease=3, fresh=True)
    cluster.balanced(1)
    with publishing(cluster.ledger, seconds=0.001):
        eventually(lambda: len(cluster.journal.ended()) > 50, 60, 0.05)
        killed.send(signal.SIGKILL)
        at = time.monotonic()
        killed.wait()
        assert time.monotonic() - at < 6, "they end within their lease, on a loaded machine a little more"
        assert cluster.owners.shares().keys() == {None}
        cluster.node("other", lease=3)
        cluster.balanced(1)
        eventually(lambda: cluster.owners.instances("killed") == {}, 20, 0.05)  # buried when its lease has ended
        reached = len(cluster.journal.ended())
        eventually(lambda: len(cluster.journal.ended()) > reached + 50, 60, 0.05)
    cluster.delivered()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])


def test_a_killed_node_is_taken_over_within_its_lease_and_a_little(cluster):
    killed = cluster.node("killed")
    cluster.balanced(1)
    cluster.node("other")
    cluster.balanced(2)
    with publishing(cluster.ledger, seconds=0.001):
        eventually(lambda: len(cluster.journal.ended()) > 50, 60, 0.05)
        pids = set(cluster.owners.instances("killed").values())
        killed.send_to_all(signal.SIGKILL)
        at = cluster.clock()
        cluster.balanced(1)
        assert cluster.clock() - at < 2 + 6, "the lease, and what a loaded machine adds"
    cluster.delivered()
    verdict = cluster.verdict()
    assert verdict.wrong() == {}
    victims = cluster.journal.deliveries(lambda one: one.pid in pids)
    assert {repeat.event for repeat in verdict.repeats} <= {one.event for one in victims}
