"""Processes that are stopped for longer than their lease and then go on as if nothing had happened."""

import os
import signal
from functools import partial

import pytest
from ledger import publishing
from waiting import eventually

from partbox.protocol.hashing import partition_of

BUSY = 8
"""Events whose handlers are in the middle of their work when their process freezes."""


def freeze_and_thaw(cluster, pid, signal_it):
    """Freeze a process, or its whole node, until others own everything and deliver; then thaw it.

    Gives the partitions' rows, and the time, of the moment before the thaw.
    """
    owner = {number: row.owner for number, row in cluster.owners.rows().items()}
    old = {instance for instance, its_pid in cluster.owners.instances().items() if its_pid == pid}
    names = [name for name in cluster.ledger.names if owner[partition_of(name)] in old][:BUSY]
    gate = cluster.gate()
    gated = cluster.ledger.publish_now(names, gate=str(gate))
    cluster.running(gated)
    waiting = cluster.ledger.publish_now(names, burst=3)
    signal_it(signal.SIGSTOP)
    gate.touch()
    eventually(lambda: not old & {None, *cluster.owners.shares()}, interval=0.02)
    eventually(lambda: {*gated, *waiting} <= cluster.journal.ended(), interval=0.02)
    before, at = cluster.owners.rows(), cluster.clock()
    signal_it(signal.SIGCONT)
    eventually(lambda: not old & cluster.owners.instances().keys(), interval=0.02)
    cluster.balanced(2)
    return before, at


@pytest.mark.parametrize(
    "whole_node", [False, pytest.param(True, marks=pytest.mark.thorough)], ids=["a process", "a node"]
)
def test_a_process_that_was_frozen_neither_starts_events_of_lost_partitions_nor_saves_them(cluster, whole_node):
    lease = {"lease": 3, "heartbeat": 0.3}
    node = cluster.node("frozen", concurrency=BUSY + 4, **lease)
    other = cluster.node("other", **lease)
    cluster.balanced(2)
    ((old, pid),) = cluster.owners.instances("frozen").items()
    # Few: what may have killed a process is charged one by one, and one that stays frozen for long is replaced.
    with publishing(cluster.ledger, threads=1, count=60, seconds=0.001):
        before, thawed_at = freeze_and_thaw(cluster, pid, node.send_to_all if whole_node else partial(os.kill, pid))
    cluster.balanced(2)
    with publishing(cluster.ledger, count=60, seconds=0.001):
        pass
    cluster.delivered()

    after = cluster.owners.rows()
    assert old not in {row.owner for row in after.values()}
    for number, row in before.items():
        assert (after[number].last_id, after[number].xmax) >= (row.last_id, row.xmax), "its save was refused"
    mine = cluster.journal.deliveries(lambda one: one.pid == pid)
    in_flight = {one.event for one in mine if one.start < thawed_at}
    late = [one for one in mine if one.start > thawed_at]
    assert late, "it works again"
    assert [one for one in late if one.epoch <= before[one.partition].epoch] == []

    verdict = cluster.verdict()
    assert {repeat.event for repeat in verdict.repeats} <= in_flight
    # A handler in the middle of its work goes on after the thaw, beside whoever has taken its aggregate over.
    verdict.overlaps = [pair for pair in verdict.overlaps if pair[0].pid != pid or pair[0].start > thawed_at]
    assert verdict.wrong() == {}
    assert (node.stop(), other.stop()) == (0, 0)
