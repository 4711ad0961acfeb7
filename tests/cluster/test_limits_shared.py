"""A limit holds for all processes together, however many there are, and while partitions move."""

from bisect import bisect_left
from itertools import accumulate

import pytest
from waiting import eventually

RATE = 200


@pytest.mark.parametrize(
    "seconds", [pytest.param(1.5, id="briefly"), pytest.param(30.0, id="for long", marks=pytest.mark.soak)]
)
def test_two_four_and_one_processes_together_start_as_many_handlers_as_the_rate_allows(cluster, seconds):
    first, others = cluster.node("first"), [cluster.node("second")]
    cluster.balanced(2)
    publish_for(cluster, seconds)
    runs_for(cluster, seconds)
    others.append(cluster.node("third", processes=2))
    cluster.balanced(4)
    runs_for(cluster, seconds)
    for node in others:
        assert node.stop() == 0
    cluster.balanced(1)
    cluster.delivered()
    assert first.process.poll() is None
    verdict = cluster.verdict()
    assert (verdict.wrong(), verdict.repeats) == ({}, [])

    starts = sorted(call.start for call in cluster.journal.deliveries())
    # Started before a call, less what the rate brings until then: from the least of that on at most a second's more.
    debts = [number - RATE * at for number, at in enumerate(starts)]
    assert all(debt + 1 <= least + RATE for debt, least in zip(debts, accumulate(debts, min), strict=True))
    if seconds > 10:  # long enough for whole windows under load
        for at in starts:
            if at + 10 < starts[-1] - 1:
                began = bisect_left(starts, at)
                assert 0.9 <= (bisect_left(starts, at + 10) - began) / (10 * RATE) <= 1.1


def publish_for(cluster, seconds):
    """Publish somewhat more events than the rate allows to start in `seconds` seconds."""
    names = cluster.ledger.names
    cluster.ledger.publish_now(names, burst=1 + int(seconds * RATE / len(names)), event_type="Limited")


def runs_for(cluster, seconds):
    """Wait until as many handlers more have ended as the rate allows to start in `seconds` seconds.

    As many events are published before, because an earlier backlog may have ended while processes joined."""
    publish_for(cluster, seconds)
    enough = len(cluster.journal.ended()) + seconds * RATE
    eventually(
        lambda: len(cluster.journal.ended()) >= enough, interval=0.05, moves=lambda: len(cluster.journal.ended())
    )
