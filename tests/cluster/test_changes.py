"""Processes and nodes come and go while events flow."""

import os
import signal
from collections.abc import Callable

import pytest
from ledger import REST, publishing
from waiting import eventually

SOON = 5.0
"""Seconds before a kill within which what a process finished may not be saved yet, on a loaded machine."""


def delivered_at_least(cluster, count: int) -> Callable[[], bool]:
    return lambda: len(cluster.journal.ended()) >= count


@pytest.mark.thorough
@pytest.mark.every_version("a cluster at work")
@pytest.mark.parametrize(
    ("count", "rest", "processes"), [(400, REST, 1), pytest.param(20_000, None, 2, marks=pytest.mark.soak)]
)
def test_a_kill_a_join_and_a_leave_lose_nothing_and_repeat_only_events_in_flight(cluster, count, rest, processes):
    """Publish this many events of 500 aggregates, while nodes of this many processes come and go."""
    first, leaving = cluster.node("first", processes=2), cluster.node("leaving", processes=processes)
    cluster.balanced(2 + processes)
    with publishing(cluster.ledger, threads=4, count=count, rest=rest, seconds=0.001) as committed:
        eventually(delivered_at_least(cluster, count // 10), interval=0.05)
        victim = next(iter(cluster.owners.instances("first").values()))
        killed_at = cluster.kill(victim)
        eventually(delivered_at_least(cluster, count * 3 // 10), interval=0.05)
        cluster.node("joining", processes=processes)
        eventually(lambda: cluster.owners.instances("joining"), interval=0.05)
        eventually(delivered_at_least(cluster, count // 2), interval=0.05)
        assert leaving.stop() == 0
    cluster.delivered()

    assert committed() == len(cluster.ledger.published()) == count
    verdict = cluster.verdict()
    assert verdict.wrong() == {}
    repeated = {repeat.event for repeat in verdict.repeats}
    in_flight = {
        delivery.event
        for delivery in cluster.journal.deliveries(lambda delivery: delivery.pid == victim)
        if delivery.end is None or delivery.end > killed_at - SOON
    }
    assert repeated <= in_flight
    assert len(verdict.repeats) == len(repeated)
    assert first.stop() == 0


@pytest.mark.thorough
def test_nodes_that_join_and_leave_gracefully_repeat_nothing(cluster):
    leaving = cluster.node("leaving", processes=1)
    cluster.balanced(1)
    with publishing(cluster.ledger, threads=2, seconds=0.001):
        eventually(delivered_at_least(cluster, 40), interval=0.05)
        staying = cluster.node("staying", processes=1)
        cluster.balanced(2)
        reached = len(cluster.journal.ended())
        eventually(delivered_at_least(cluster, reached + 40), interval=0.05)
        assert leaving.stop() == 0
        cluster.balanced(1)
        reached = len(cluster.journal.ended())
        eventually(delivered_at_least(cluster, reached + 40), interval=0.05)
    cluster.delivered()
    assert staying.stop() == 0

    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
    assert cluster.owners.shares().keys() == {None}


def test_a_process_that_dies_is_replaced(cluster):
    node = cluster.node("node", processes=2)
    cluster.balanced(2)
    before = set(cluster.owners.instances("node").values())
    victim = min(before)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: victim not in cluster.owners.instances("node").values(), interval=0.02)
    cluster.balanced(2)

    after = set(cluster.owners.instances("node").values())
    assert before - after == {victim}
    assert f"process {victim} was killed by SIGKILL; its partitions go to others and it is replaced" in node.log
    cluster.ledger.publish_now(cluster.ledger.names[:100])
    cluster.delivered()
    assert {delivery.pid for delivery in cluster.journal.deliveries()} == after
