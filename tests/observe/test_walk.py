"""What a walk tells of the events that it has delivered, though it hardly looks at a clock."""

import time

import pytest

from partbox.codecs import Codecs
from partbox.events import DeliveredEvent
from partbox.handlers import Handlers
from partbox.observe import QUICK, Observers
from partbox.settings import load
from partbox.worker import walk as walking
from partbox.worker.endpoint import Endpoint
from partbox.worker.walk import Walk

Y2000 = 946_684_800


class Clock:
    """Stands still unless it is moved."""

    def __init__(self):
        self.now = 1_000.0

    def monotonic(self):
        return self.now

    def time(self):
        return Y2000 + self.now


def leave(walk, started, first, endpoint, last):
    """As whoever walks a lane leaves it."""
    walk.oldest = walk.oldest or first
    walk.ended, walk.started = (endpoint, last), started


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(walking, "time", clock)
    return clock


@pytest.fixture
def endpoint(dsn):
    handlers = Handlers()
    handlers.register(lambda event: None, "A", name="h")
    return (
        handlers.routes("default", load(dsn=dsn)).map(lambda each: Endpoint(each, (), 100, Observers())).find("A", "x")
    )


def event(published):
    created = int(published * 1_000_000).to_bytes(8, "big")
    row = (0, 1, bytes(16), "A", "x", "1", None, b"1", None, None, None, None, created, created)
    return DeliveredEvent(row, 1, "default", 1, Codecs(None))


def test_quick_events_share_the_time_of_the_walk(clock, endpoint):
    walk = Walk(clock.now, 0.0, counted=True)
    walk.quick[endpoint] += 100
    clock.now += 0.05
    leave(walk, clock.now, event(10), endpoint, event(20))
    leave(walk, clock.now, event(25), endpoint, event(30))
    (turn,) = walk.turns()
    assert (turn.count, turn.slow, turn.oldest, turn.newest) == (100, [], Y2000 + 10, Y2000 + 30)
    assert turn.seconds == pytest.approx(0.05)
    assert turn.ended == Y2000 + clock.now


def test_a_slow_event_is_found_at_the_look_that_follows_it(clock, endpoint):
    walk, first = Walk(clock.now, 0.0, counted=True), event(1)
    walk.quick[endpoint] += 1
    started = clock.now
    clock.now += 3.0
    walk.passed(endpoint, first, started)
    walk.quick[endpoint] += 4
    leave(walk, clock.now, event(2), endpoint, event(2))
    (turn,) = walk.turns()
    assert (turn.count, turn.slow) == (5, [pytest.approx(3.0)])
    assert turn.seconds == pytest.approx(3.0)


@pytest.mark.parametrize("looked", [False, True], ids=["at the end", "by a look in the next lane"])
def test_the_last_event_of_a_lane_may_be_the_slow_one(clock, endpoint, looked):
    walk = Walk(clock.now, 0.0, counted=True)
    walk.quick[endpoint] += 1
    started = clock.now
    clock.now += 0.5
    leave(walk, started, event(1), endpoint, event(1))
    if looked:
        walk.passed_between()
        clock.now += 0.7
        walk.passed_between()  # it is found once
    (turn,) = walk.turns()
    assert (turn.count, turn.slow) == (1, [pytest.approx(0.5)])


def test_a_slow_event_that_ends_the_turn_of_its_lane_is_found_once(clock, endpoint):
    walk, slow = Walk(clock.now, 0.0, counted=True), event(1)
    walk.quick[endpoint] += 1
    started = clock.now
    clock.now += 0.5
    walk.passed(endpoint, slow, started)  # the look before the event that must wait for another turn
    leave(walk, started, slow, endpoint, slow)
    (turn,) = walk.turns()
    assert (turn.count, turn.slow) == (1, [pytest.approx(0.5)])


def test_what_did_not_succeed_is_no_delivery_and_its_time_is_nobody_elses(clock, endpoint):
    walk, failed = Walk(clock.now, 0.0, counted=True), event(1)
    clock.now += 2.0
    walk.ran(endpoint, failed, 2.0, done=False)
    walk.passed(endpoint, failed, clock.now - 2.0)  # known already
    walk.quick[endpoint] += 1
    leave(walk, clock.now, event(2), endpoint, event(2))
    clock.now += QUICK / 2
    (turn,) = walk.turns()
    assert (turn.count, turn.slow) == (1, [])
    assert turn.seconds == pytest.approx(QUICK / 2)


def test_what_was_told_is_not_told_again(clock, endpoint):
    walk = Walk(clock.now, 0.0, counted=True)
    walk.quick[endpoint] += 3
    leave(walk, clock.now, event(1), endpoint, event(2))
    assert [turn.count for turn in walk.turns()] == [3]
    assert list(walk.turns()) == []
    walk.quick[endpoint] += 1
    clock.now += 0.0005
    leave(walk, clock.now, event(3), endpoint, event(3))
    (turn,) = walk.turns()
    assert (turn.count, turn.oldest, turn.seconds) == (1, Y2000 + 3, pytest.approx(0.0005))


def test_a_walk_without_a_delivery_tells_nothing(clock, endpoint):
    walk = Walk(clock.now, 0.0, counted=True)
    walk.ran(endpoint, event(1), 1.0, done=False)
    assert list(walk.turns()) == []
    assert list(Walk(clock.now, 0.0, counted=False).turns()) == []


def test_a_walk_of_another_age_reads_the_same_time_as_python(clock, endpoint):
    published = time.time()
    walk = Walk(clock.now, 0.0, counted=True)
    walk.ran(endpoint, event(published - Y2000), 0.1, done=True)
    (turn,) = walk.turns()
    assert turn.oldest == turn.newest == pytest.approx(published, abs=1e-3)
