"""A rebalance waits for running handlers, and leaves other partitions alone."""

import pytest
from waiting import eventually

BUSY = 16


def test_a_rebalance_waits_for_running_handlers_and_never_pauses_other_partitions(cluster):
    cluster.node("old", concurrency=BUSY + 4)
    cluster.balanced(1)
    gate = cluster.gate()
    gated = cluster.ledger.publish_now(cluster.ledger.names[:BUSY], gate=str(gate))
    held = {delivery.partition for delivery in cluster.running(gated)}
    behind = cluster.ledger.publish_now(cluster.ledger.names[:BUSY])
    before = cluster.owners.rows()
    (old,) = cluster.owners.instances("old")

    cluster.node("new")
    (new,) = eventually(lambda: cluster.owners.instances("new"), interval=0.05)
    eventually(lambda: cluster.owners.shares()[new] >= 128 - len(held), interval=0.05)
    rows = cluster.owners.rows()
    leaving = {number for number, row in rows.items() if row.assignee == new and row.owner == old}
    kept = {number for number, row in rows.items() if row.assignee == old}
    assert leaving, "handlers run in partitions that are to move"
    assert leaving <= held, "nothing else is waited for"
    assert len(kept) == 128

    meanwhile = cluster.ledger.publish_now(cluster.ledger.names[BUSY:])
    # Also those in the partitions that are to leave: a handler that runs for long holds up no other key.
    eventually(lambda: set(meanwhile) <= cluster.journal.ended(), interval=0.05)
    assert not gate.exists()
    assert {number for number, row in cluster.owners.rows().items() if row.owner == old} == kept | leaving
    assert all(rows[number].epoch == before[number].epoch for number in kept | leaving)

    gate.touch()
    cluster.balanced(2)
    cluster.delivered()
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])
    after = cluster.owners.rows()
    assert {number for number, row in after.items() if row.epoch == before[number].epoch} == kept
    moved = cluster.journal.deliveries(lambda one: one.event in behind and one.partition in leaving)
    assert moved
    assert all(one.epoch in (before[one.partition].epoch, after[one.partition].epoch) for one in moved)


@pytest.mark.thorough
def test_a_joining_process_moves_no_more_partitions_than_it_must(cluster):
    cluster.node("one", processes=2)
    cluster.balanced(2)
    before = cluster.owners.rows()
    cluster.node("two")
    cluster.balanced(3)
    after = cluster.owners.rows()
    assert sum(after[number].epoch != row.epoch for number, row in before.items()) == 85
