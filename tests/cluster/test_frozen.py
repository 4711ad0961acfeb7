"""Processes that are stopped for longer than their lease and then go on as if nothing had happened."""

import os
import signal

import pytest
from waiting import eventually

FROZEN = 8
"""Events whose handlers are in the middle of their work when their process freezes."""


def thaw_and_check(cluster, frozen_pids, old_instances, in_flight, thaw):
    """From when everything has gone to others: thaw, and look at what the thawed processes do."""
    before = cluster.owners.rows()
    thawed_at = thaw()
    eventually(lambda: not old_instances & cluster.owners.instances().keys(), 20, 0.02)
    cluster.balanced(len(frozen_pids) + 1)
    after = cluster.owners.rows()
    cluster.ledger.publish_now(cluster.ledger.names)
    cluster.delivered()

    late = cluster.journal.deliveries(lambda one: one.pid in frozen_pids and one.start > thawed_at)
    assert late, "the thawed processes work again"
    assert all(one.epoch > before[one.partition].epoch for one in late)
    assert not old_instances & {row.owner for row in after.values()}
    for number, row in before.items():
        assert (after[number].last_id, after[number].xmax) >= (row.last_id, row.xmax)
    verdict = cluster.verdict()
    assert {repeat.event for repeat in verdict.repeats} <= in_flight

    def excused(first):
        """It was in the middle of its work, and goes on beside whoever has taken its aggregate over."""
        return first.pid in frozen_pids and first.start < thawed_at

    verdict.overlaps = [(first, second) for first, second in verdict.overlaps if not excused(first)]
    assert verdict.wrong() == {}


@pytest.mark.parametrize("whole_node", [False, True], ids=["a process", "a node"])
def test_after_a_freeze_it_starts_nothing_of_what_it_lost_and_saves_nothing(cluster, whole_node):
    lease = {"lease": 3, "heartbeat": 0.3}
    frozen = cluster.node("frozen", concurrency=FROZEN + 2, **lease)
    cluster.balanced(1)
    gate = cluster.gate()
    gated = cluster.ledger.publish_now(cluster.ledger.names[:FROZEN], gate=str(gate))
    cluster.running(gated)
    waiting = cluster.ledger.publish_now(cluster.ledger.names[:FROZEN], burst=3)
    old = cluster.owners.instances("frozen")
    (pid,) = old.values()

    frozen.send_to_all(signal.SIGSTOP) if whole_node else os.kill(pid, signal.SIGSTOP)
    in_flight = cluster.journal.started()
    gate.touch()
    cluster.node("other", **lease)
    eventually(lambda: {row.owner for row in cluster.owners.rows().values()} - {None}
               == cluster.owners.instances("other").keys() != set(), 40, 0.02)
    eventually(lambda: {*gated, *waiting} <= cluster.journal.ended(), 40, 0.02)

    def thaw():
        at = cluster.clock()
        frozen.send_to_all(signal.SIGCONT) if whole_node else os.kill(pid, signal.SIGCONT)
        return at

    thaw_and_check(cluster, {pid}, set(old), in_flight, thaw)
    assert frozen.stop() == 0
