"""A supervisor that is killed."""

import signal
from datetime import timedelta

import pytest
from clusters import FAST
from ledger import publishing
from waiting import eventually

SECOND = timedelta(seconds=1)


@pytest.mark.thorough
def test_the_processes_of_a_killed_supervisor_release_their_partitions_and_end_by_themselves(cluster):
    killed = cluster.node("killed", processes=1, lease=3, fresh=True)
    cluster.balanced(1)
    with publishing(cluster.ledger, seconds=0.001):
        eventually(lambda: len(cluster.journal.ended()) > 50, interval=0.05)
        killed.send(signal.SIGKILL)
        killed.wait()
        assert cluster.owners.shares().keys() == {None}
        cluster.node("other", lease=3)
        cluster.balanced(1)
        eventually(lambda: cluster.owners.instances("killed") == {}, interval=0.05)  # buried when its lease has ended
        reached = len(cluster.journal.ended())
        eventually(lambda: len(cluster.journal.ended()) > reached + 50, interval=0.05)
    cluster.delivered()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])


def test_a_killed_node_is_taken_over_when_its_lease_is_over_and_not_before(cluster):
    killed = cluster.node("killed")
    cluster.balanced(1)
    cluster.node("other")
    cluster.balanced(2)
    with publishing(cluster.ledger, seconds=0.001):
        eventually(lambda: len(cluster.journal.ended()) > 50, interval=0.05)
        pids = set(cluster.owners.instances("killed").values())
        conn = cluster.owners.conn
        (beaten,) = conn.execute("select max(heartbeat_at) from partbox.instance where node = 'killed'").fetchone()
        killed.send_to_all(signal.SIGKILL)
        cluster.balanced(1)
        (taken,) = conn.execute("select max(claimed_at) from partbox.partition").fetchone()
        assert taken - beaten >= FAST["lease"] * SECOND
    cluster.delivered()
    verdict = cluster.verdict()
    assert verdict.wrong() == {}
    victims = cluster.journal.deliveries(lambda one: one.pid in pids)
    assert {repeat.event for repeat in verdict.repeats} <= {one.event for one in victims}
