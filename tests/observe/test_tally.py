"""What a tally tells of the events that were delivered, though it hardly looks at a clock."""

import time
from dataclasses import replace

import pytest

from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent
from partbox.handlers import Handlers
from partbox.observe import QUICK, Observers
from partbox.settings import load
from partbox.worker.reports import delivery_counts as tallying
from partbox.worker.reports.delivery_counts import REPORT_INTERVAL, Tally, build_list_turn
from partbox.worker.runners.endpoint import Endpoint

Y2000 = 946_684_800


class Clock:
    """Stands still unless it is moved."""

    def __init__(self):
        self.now = 1_000.0

    def monotonic(self):
        return self.now

    def time(self):
        return Y2000 + self.now


def begun(clock):
    tally = Tally()
    tally.begin_slice(clock.now)
    return tally


def leave(tally, started, first, endpoint, last, *, quick):
    """As whoever walks a lane leaves it, with so many quick ones."""
    tally.oldest_event = tally.oldest_event or first
    tally.count_run([endpoint] * quick, (endpoint, last), started)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(tallying, "time", clock)
    return clock


@pytest.fixture
def endpoint(dsn):
    handlers = Handlers()
    handlers.register(lambda event: None, "A", name="h")
    routes = handlers.build_routes("default", load(dsn=dsn))
    return routes.map_handlers(lambda each: Endpoint(each, (), 100, Observers()))["A", "x"]


def event(published):
    created = int(published * 1_000_000).to_bytes(8, "big")
    row = (0, 1, bytes(16), "A", "x", "1", None, b"1", None, None, None, None, created, created)
    return DeliveredEvent(row, ClaimContext(1, "default", Codecs(None)))


def test_quick_events_share_the_time_of_their_turns_but_not_the_time_between_turns(clock, endpoint):
    tally = begun(clock)
    clock.now += 0.005
    leave(tally, clock.now, event(10), endpoint, event(20), quick=60)
    assert not tally.end_slice()
    clock.now += 1_000
    tally.begin_slice(clock.now)
    clock.now += 0.045
    leave(tally, clock.now, event(25), endpoint, event(30), quick=40)
    (turn,) = tally.take_turns()
    assert (turn.count, turn.slow, turn.oldest, turn.newest) == (100, [], Y2000 + 10, Y2000 + 30)
    assert turn.seconds == pytest.approx(0.05)
    assert turn.ended == Y2000 + clock.now


def test_the_tally_is_due_for_a_report_once_per_interval(clock, endpoint):
    tally = begun(clock)
    for number in range(1, 4):
        clock.now += REPORT_INTERVAL / 2
        leave(tally, clock.now, event(number), endpoint, event(number), quick=1)
        assert tally.end_slice() is (number > 1)
        tally.begin_slice(clock.now)
    assert [turn.count for turn in tally.take_turns()] == [3]
    tally.begin_slice(clock.now)
    leave(tally, clock.now, event(4), endpoint, event(4), quick=1)
    assert not tally.end_slice()


@pytest.mark.parametrize("seconds", [0.25, QUICK / 2])
def test_a_list_of_events_is_reported_like_the_same_events_one_by_one(clock, endpoint, seconds):
    alone, events = begun(clock), [event(each) for each in range(4)]
    for each in events:
        alone.count_timed(endpoint, each, seconds, done=True)
    assert [build_list_turn(endpoint, (events[0], events[-1]), 4, seconds)] == alone.take_turns()


def test_each_endpoint_has_a_turn_of_its_own(clock, endpoint):
    other = Endpoint(replace(endpoint.handler, name="other"), (), 100, Observers())
    tally = begun(clock)
    tally.count_run([endpoint, other, other, endpoint], (endpoint, event(0)), clock.now)
    leave(tally, clock.now, event(1), other, event(2), quick=1)
    leave(tally, clock.now, event(3), endpoint, event(4), quick=4)
    assert {turn.handler: turn.count for turn in tally.take_turns()} == {"h": 6, "other": 3}


def test_a_slow_event_is_found_at_the_next_check_of_the_clock(clock, endpoint):
    tally, first = begun(clock), event(1)
    started = clock.now
    clock.now += 3.0
    tally.count_if_slow(endpoint, first, started)
    leave(tally, clock.now, event(2), endpoint, event(2), quick=5)
    (turn,) = tally.take_turns()
    assert (turn.count, turn.slow) == (5, [pytest.approx(3.0)])
    assert turn.seconds == pytest.approx(3.0)


@pytest.mark.parametrize("looked", ["at the end", "by a look in the next lane", "at the end of its turn"])
def test_the_last_event_of_a_lane_may_be_the_slow_one(clock, endpoint, looked):
    tally = begun(clock)
    started = clock.now
    clock.now += 0.5
    leave(tally, started, event(1), endpoint, event(1), quick=1)
    if looked != "at the end":
        look = tally.count_last_if_slow if looked == "by a look in the next lane" else tally.end_slice
        look()
        clock.now += 0.7
        look()  # it is found once
    (turn,) = tally.take_turns()
    assert (turn.count, turn.slow) == (1, [pytest.approx(0.5)])


def test_a_quick_event_before_a_pause_is_not_slow(clock, endpoint):
    tally = begun(clock)
    leave(tally, clock.now, event(1), endpoint, event(1), quick=1)
    tally.end_slice()
    clock.now += 60
    (turn,) = tally.take_turns()
    assert (turn.count, turn.slow, turn.newest) == (1, [], Y2000 + 1)


def test_a_slow_event_that_ends_the_turn_of_its_lane_is_found_once(clock, endpoint):
    tally, slow = begun(clock), event(1)
    started = clock.now
    clock.now += 0.5
    tally.count_if_slow(endpoint, slow, started)  # the look before the event that must wait for another turn
    leave(tally, started, slow, endpoint, slow, quick=1)
    (turn,) = tally.take_turns()
    assert (turn.count, turn.slow) == (1, [pytest.approx(0.5)])


def test_a_failed_event_is_not_counted_and_its_time_is_not_given_to_other_events(clock, endpoint):
    tally, failed = begun(clock), event(1)
    clock.now += 2.0
    tally.count_timed(endpoint, failed, 2.0, done=False)
    tally.count_if_slow(endpoint, failed, clock.now - 2.0)  # known already
    leave(tally, clock.now, event(2), endpoint, event(2), quick=1)
    clock.now += QUICK / 2
    (turn,) = tally.take_turns()
    assert (turn.count, turn.slow) == (1, [])
    assert turn.seconds == pytest.approx(QUICK / 2)


def test_reported_turns_are_not_reported_again(clock, endpoint):
    tally = begun(clock)
    leave(tally, clock.now, event(1), endpoint, event(2), quick=3)
    assert [turn.count for turn in tally.take_turns()] == [3]
    assert tally.take_turns() == []
    leave(tally, clock.now, event(3), endpoint, event(3), quick=1)
    clock.now += 0.0005
    (turn,) = tally.take_turns()
    assert (turn.count, turn.oldest, turn.seconds) == (1, Y2000 + 3, pytest.approx(0.0005))


def test_without_a_delivery_nothing_is_told(clock, endpoint):
    tally = begun(clock)
    tally.count_timed(endpoint, event(1), 1.0, done=False)
    assert tally.take_turns() == []
    assert tally.oldest_event is None


def test_a_timestamp_of_the_database_is_converted_to_python_time(clock, endpoint):
    published = time.time()
    tally = begun(clock)
    tally.count_timed(endpoint, event(published - Y2000), 0.1, done=True)
    (turn,) = tally.take_turns()
    assert turn.oldest == turn.newest == pytest.approx(published, abs=1e-3)
