"""A rolling deploy: each node in turn is told to stop, and another one takes its place, while events flow."""

import signal

import pytest
from ledger import publishing
from run_size import examples
from waiting import eventually

NODES = max(2, examples(4))
EACH = 40
"""Events that the new cluster handles before the next node is replaced: the load goes on throughout."""


@pytest.mark.thorough
def test_a_rolling_deploy_of_all_nodes_under_load_delivers_everything_once_and_in_order(cluster):
    """Half of the new nodes come before the old one goes, as with a surge; the other half when it has gone."""
    running = [cluster.node(f"old-{number}") for number in range(NODES)]
    cluster.balanced(NODES)
    before = set(cluster.owners.instances().values())

    def flows() -> None:
        reached = len(cluster.journal.ended())
        eventually(lambda: len(cluster.journal.ended()) >= reached + EACH, interval=0.05)

    with publishing(cluster.ledger, seconds=0.02):
        flows()
        for number, old in enumerate(running.copy()):
            surge = number % 2 == 0
            if surge:
                running.append(cluster.node(f"new-{number}"))
                cluster.balanced(NODES + 1)
            old.send(signal.SIGTERM)
            assert old.wait() == 0
            if not surge:
                running.append(cluster.node(f"new-{number}"))
            cluster.balanced(NODES)
            flows()
    cluster.delivered()

    after = set(cluster.owners.instances().values())
    assert (len(before), len(after), before & after) == (NODES, NODES, set())
    assert {call.pid for call in cluster.journal.deliveries()} == before | after
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
    assert [new.stop() for new in running[NODES:]] == [0] * NODES
    assert cluster.owners.shares().keys() == {None}
