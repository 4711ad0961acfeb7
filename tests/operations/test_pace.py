"""Rates from two looks: exact where both are counted, by the cursors' way where one is estimated."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partbox.db.inspect.stats import Cluster, Overview, PartitionStats
from partbox.operations.stats import RateMeter, estimate_delivered

START = datetime(2026, 1, 1, tzinfo=UTC)


def a_partition(number: int = 0, pending: int = 0, last_id: int = 0, fill: float | None = None) -> PartitionStats:
    return PartitionStats(
        partition=number,
        assignee=None,
        owner=None,
        epoch=1,
        pending=pending,
        exact=fill is None,
        oldest_age=None,
        claimed_age=None,
        saved_age=None,
        suspect=False,
        last_id=last_id,
        fill=fill,
    )


def a_cluster(*partitions: PartitionStats, name: str = "default", **parked: int) -> Cluster:
    return Cluster(
        schema="partbox",
        subscription=name,
        paused=False,
        instances=(),
        partitions=partitions,
        parked=parked,
        created=START,
        paused_at=None,
        completed=0,
        blocked_keys=0,
    )


def overview(seconds: float, newest_id: int, *clusters: Cluster) -> Overview:
    return Overview("partbox", START + timedelta(seconds=seconds), clusters, newest_id)


counts = st.integers(0, 10_000)


@given(st.lists(st.tuples(counts, counts, counts), min_size=1, max_size=8), counts, counts)
def test_exact_counts_lose_no_event_between_two_observations(changes, parked, unparked):
    """Of each partition: pending before, published since, delivered since (no more than there is)."""
    changes = [(old, new, min(done, old + new)) for old, new, done in changes]
    before = a_cluster(*(a_partition(number, old) for number, (old, _, _) in enumerate(changes)), dead=parked)
    after = a_cluster(
        *(a_partition(number, old + new - done) for number, (old, new, done) in enumerate(changes)), dead=unparked
    )
    drawn = sum(new for _, new, _ in changes)
    done = sum(done for _, _, done in changes)
    assert estimate_delivered(before, after, drawn) == pytest.approx(done - (unparked - parked))


def test_a_deep_backlog_is_measured_by_its_cursor_and_not_by_its_estimate():
    """Every second id is of the partition; the estimate of what is left has grown by chance."""
    before = a_cluster(a_partition(0, 1_000_000, last_id=5_000, fill=0.5), a_partition(1, 10))
    after = a_cluster(a_partition(0, 1_090_000, last_id=6_000, fill=0.5), a_partition(1, 10))
    assert estimate_delivered(before, after, 0) == 500
    # Of 200 ids half are of the first partition; the second has no more than before: it delivered the others.
    assert estimate_delivered(before, after, 200) == 600


def test_rates_are_those_of_the_last_seconds():
    pace = RateMeter()
    assert pace.compute_rates("default") is None
    for second in range(20):
        speed = 100 if second < 10 else 300
        total = sum(100 if each < 10 else 300 for each in range(second))
        pace.add_overview(overview(second, total, a_cluster(a_partition(0))))
        rates = pace.compute_rates("default")
        assert (rates is None) == (second == 0)
    assert rates.published == rates.delivered == pytest.approx(speed)


def test_an_observation_that_is_not_newer_changes_no_rate():
    pace = RateMeter()
    pace.add_overview(overview(0, 0, a_cluster(a_partition(0))))
    pace.add_overview(overview(1, 100, a_cluster(a_partition(0, 40))))
    before = pace.compute_rates("default")
    pace.add_overview(overview(1, 100, a_cluster(a_partition(0, 40))))
    assert pace.compute_rates("default") == before
    assert (before.published, before.delivered) == (100, 60)


def test_a_replay_does_not_make_a_rate_negative():
    pace = RateMeter()
    pace.add_overview(overview(0, 100, a_cluster(a_partition(0))))
    pace.add_overview(overview(1, 100, a_cluster(a_partition(0, 100))))
    assert pace.compute_rates("default").delivered == 0


def test_rates_follow_subscriptions_that_appear_and_disappear():
    pace = RateMeter()
    first = a_cluster(a_partition(0))
    pace.add_overview(overview(0, 0, first))
    pace.add_overview(overview(1, 10, first, replace(first, subscription="new")))
    assert (pace.compute_rates("default").published, pace.compute_rates("new")) == (10, None)
    pace.add_overview(overview(2, 30, replace(first, subscription="new")))
    assert (pace.compute_rates("default"), pace.compute_rates("new").published) == (None, 20)
