"""The rule for burying an instance: by the database's clock, by the watcher's, and only if it watched all the time."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from partbox.protocol.intervals import beat_interval
from partbox.protocol.lease import (
    MOST_EXTRA_LEASES,
    Burials,
    SeenHeartbeat,
    breaks_watch,
    extra_patience,
    find_burials,
    measure_delay,
    update_sightings,
)

LEASE = 6.0
WHO, OTHER = UUID(int=1), UUID(int=2)
THEN = datetime(2026, 1, 1, tzinfo=UTC)


class Instance(NamedTuple):
    instance_id: UUID = WHO
    heartbeat_at: datetime = THEN
    lease_left: float = -1.0
    lease: float = LEASE


def judged(instance: Instance, since: float, now: float, steady_since: float | None = None) -> Burials:
    return find_burials([instance], {instance.instance_id: SeenHeartbeat(THEN, since)}, now, steady_since)


def test_an_instance_is_buried_when_all_three_conditions_hold():
    assert judged(Instance(), since=0, now=6, steady_since=0) == Burials([WHO], None)


def test_the_next_check_is_due_when_the_latest_of_the_three_conditions_holds():
    assert judged(Instance(lease_left=5.0), since=0, now=2, steady_since=-9) == Burials([], 5.0)
    assert judged(Instance(lease_left=-1.0), since=1, now=2, steady_since=0) == Burials([], 5.0)
    assert judged(Instance(lease_left=-1.0), since=0, now=2, steady_since=1) == Burials([], 5.0)
    assert judged(Instance(lease_left=-1.0), since=0, now=2) == Burials([], 4.0)


def test_there_is_no_next_check_when_there_is_no_instance_to_watch():
    assert find_burials([], {}, 0.0) == Burials([], None)


def test_each_instance_is_judged_by_itself_and_by_its_own_lease():
    seen = {WHO: SeenHeartbeat(THEN, 0), OTHER: SeenHeartbeat(THEN, 0)}
    assert find_burials([Instance(), Instance(OTHER, lease=9.0)], seen, 6) == Burials([WHO], 3.0)


def test_a_pause_breaks_the_watch_when_it_is_longer_than_half_a_lease():
    assert [breaks_watch(pause, LEASE) for pause in (0, 3.0, 3.1)] == [False, False, True]


def test_a_sighting_is_kept_while_the_heartbeat_is_the_same_and_forgotten_with_its_instance():
    first = update_sightings({}, [Instance(), Instance(OTHER)], 1)
    assert first == {WHO: SeenHeartbeat(THEN, 1), OTHER: SeenHeartbeat(THEN, 1)}
    assert update_sightings(first, [Instance()], 3, pause=2) == {WHO: SeenHeartbeat(THEN, 1)}


def test_a_new_heartbeat_or_a_break_begins_the_sighting_anew():
    later, seen = THEN + timedelta(seconds=1), {WHO: SeenHeartbeat(THEN, 1)}
    assert update_sightings(seen, [Instance(heartbeat_at=later)], 3) == {WHO: SeenHeartbeat(later, 3)}
    assert update_sightings(seen, [Instance()], 5, pause=4) == {WHO: SeenHeartbeat(THEN, 5)}


def test_a_watcher_that_was_late_itself_gives_others_more_time():
    seen = {WHO: SeenHeartbeat(THEN, 0)}
    assert find_burials([Instance(lease_left=-2.0)], seen, 8, 0, extra=4.0) == Burials([], 2.0)
    assert find_burials([Instance(lease_left=-4.0)], seen, 10, 0, extra=4.0) == Burials([WHO], None)


@given(st.lists(st.floats(0, 100)), st.integers(1, 1_000))
def test_the_delay_of_a_watcher_is_forgotten_and_its_patience_has_an_end(gaps, nodes):
    interval, delay = beat_interval(nodes, 1.0, LEASE), 0.0
    assert measure_delay(0.0, interval, interval) == 0.0, "it is in time"
    for gap in gaps:
        delay = measure_delay(delay, gap, interval)
        assert 0 <= extra_patience(delay, LEASE) <= MOST_EXTRA_LEASES * LEASE
    for _ in range(20):
        delay = measure_delay(delay, interval, interval)
    assert extra_patience(delay, LEASE) < 0.001


MOMENTS = st.integers(-20, 20)


@given(
    st.builds(Instance, st.just(WHO), st.just(THEN), lease_left=MOMENTS, lease=st.integers(1, 9)),
    MOMENTS,
    MOMENTS,
    st.none() | MOMENTS,
)
def test_an_instance_is_buried_exactly_when_every_condition_holds(instance, since, now, steady_since):
    decided = judged(instance, since, now, steady_since)
    watched = min(now - since, now - (since if steady_since is None else steady_since))
    assert bool(decided.due_instances) == (instance.lease_left <= 0 and watched >= instance.lease)
    assert (decided.next_in is None) == bool(decided.due_instances)
    if decided.next_in is not None:
        elapsed = instance._replace(lease_left=instance.lease_left - decided.next_in)
        assert judged(elapsed, since, now + decided.next_in, steady_since).due_instances == [WHO]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 2)), min_size=1, max_size=30))
def test_a_sighting_is_as_old_as_the_unbroken_run_of_polls_that_saw_its_heartbeat(looks):
    seen, now, began, last = {}, 0, 0, None
    for step, number in looks:
        now += step
        began = began if number == last and step <= LEASE / 2 else now
        last = number
        seen = update_sightings(seen, [Instance(heartbeat_at=THEN + timedelta(seconds=number))], now, step)
        assert seen[WHO].since == began
