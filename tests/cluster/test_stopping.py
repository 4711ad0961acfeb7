"""Nodes that are told to stop."""

import signal

import pytest
from waiting import eventually


def test_sigterm_lets_running_handlers_finish_and_releases_everything(cluster):
    node = cluster.node("node", processes=2)
    cluster.balanced(2)
    gate = cluster.gate()
    events = cluster.ledger.publish_now(cluster.ledger.names[:4], gate=str(gate))
    cluster.running(events)
    behind = cluster.ledger.publish_now(cluster.ledger.names[:4])
    node.send(signal.SIGTERM)
    eventually(lambda: cluster.owners.draining("node"), interval=0.02)
    eventually(lambda: cluster.owners.shares()[None] >= 252, interval=0.02)
    gate.touch()

    assert node.wait() == 0
    assert set(events) <= cluster.journal.ended()
    assert not set(behind) & cluster.journal.started()
    assert cluster.owners.shares().keys() == {None}
    assert cluster.owners.instances() == {}
    cluster.node("next")
    cluster.delivered()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])


@pytest.mark.parametrize("event_type", ["Step", pytest.param("AsyncStep", marks=pytest.mark.thorough)])
def test_a_handler_past_the_drain_timeout_does_not_keep_the_process(cluster, event_type):
    node = cluster.node("node", drain_timeout=1)
    cluster.balanced(1)
    gate = cluster.gate()
    (event,) = cluster.ledger.publish_now(cluster.ledger.names[:1], event_type=event_type, gate=str(gate))
    cluster.running([event])
    node.stop()
    assert event not in cluster.journal.ended()
    (said,) = [line for line in node.log.splitlines() if "was running: it may be delivered again" in line]
    assert f"{event_type!r}, id=1, aggregate=Account/account-0" in said

    gate.touch()
    cluster.node("next")
    cluster.delivered()
    assert [repeat.event for repeat in cluster.verdict().repeats] == [event]


def test_a_second_sigint_ends_at_once(cluster):
    node = cluster.node("node", processes=2, drain_timeout=60)
    cluster.balanced(2)
    gate = cluster.gate()
    events = cluster.ledger.publish_now(cluster.ledger.names[:2], gate=str(gate))
    cluster.running(events)
    node.send_to_all(signal.SIGINT)
    eventually(lambda: cluster.owners.draining("node"), interval=0.02)
    assert node.process.poll() is None
    node.send_to_all(signal.SIGINT)
    node.wait(timeout=50)  # less than the drain timeout
    assert not set(events) & cluster.journal.ended()


def test_a_node_that_is_stopped_while_it_starts_leaves_nothing_behind(cluster):
    node = cluster.node("node", processes=2)
    eventually(lambda: len(node.family()) > 2, interval=0.01)
    node.stop()
    assert cluster.owners.instances() == {}
    assert cluster.owners.shares().keys() == {None}
