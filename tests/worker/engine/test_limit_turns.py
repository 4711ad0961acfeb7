"""Lanes that wait for their turn: the timer, what does not wait any more, and memory."""

from itertools import pairwise

import pytest
from contexts import row

from partbox.codecs import Codecs
from partbox.events import Claim, DeliveredEvent
from partbox.protocol.limits import Limit, Rate
from partbox.protocol.parking import RowState
from partbox.protocol.rows import Owned
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.limited_queue import FEW, LONGEST
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.runs import Rest

EVERY = Limit(Rate(256.0))  # one start in a second for each partition
CLAIM = Claim(1, "default", Codecs())
DEFERRED = Verdict(RowState.DEFERRED, 0, 1.5, True, None)


@pytest.fixture
def engine():
    """An engine that owns one partition, and all its events have one limit, in force from 0.0 on."""
    engine = Engine(2)
    engine.woken = 0

    def look():
        engine.woken += 1

    engine.wakes.look = look
    engine.limits.place_of = lambda event: ("handler", None)
    engine.limits.put_in_force({"handler": EVERY}, 0.0)
    engine.claims.adopt([Owned(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
    return engine


def add(engine, *ids):
    """Lanes with one event each."""
    partition, lanes = engine.partitions[5], []
    for id in ids:
        lane = Lane(partition, ("Key", f"k{id}"))
        lane.queue.append(DeliveredEvent(row(id), CLAIM))
        partition._lanes[lane.key] = lane
        lanes.append(lane)
    with engine.lock:
        engine.runs.ready(lanes)
    return lanes


def run(engine, now, ended=()):
    return engine.runs.next(ended, now, trusted=True, waits=False)


def test_the_poller_is_woken_for_a_turn_sooner_than_it_knows_of_and_asked_for_no_others(engine):
    add(engine, 1, 2, 3)
    assert engine.limits.next_at(0.0) == pytest.approx(1.0)
    assert run(engine, 0.1) is Rest.IDLE
    assert engine.woken == 0
    engine.limits.put_in_force({"handler": Limit(Rate(2_560.0))}, 0.1)
    assert engine.woken == 1
    assert engine.limits.next_at(0.1) == pytest.approx(0.19)
    assert not engine.limits.is_due(0.18)
    assert engine.limits.is_due(0.2)
    engine.limits.give(0.2)
    (lane,) = run(engine, 0.2)
    assert lane.queue[0].id == 1
    assert engine.limits.covers(lane, 1)
    assert not engine.limits.covers(lane, 2)
    assert engine.woken == 1  # who is awake asks by itself


def test_a_runner_that_makes_the_next_turn_known_wakes_a_poller_that_knows_of_none(engine):
    assert engine.limits.next_at(0.0) is None
    add(engine, 1)
    assert run(engine, 0.1) is Rest.IDLE
    assert run(engine, 0.2) is Rest.IDLE
    assert engine.woken == 1


def test_what_does_not_wait_any_more_costs_no_turn_and_ends_as_any_lane_does(engine):
    held, next_one = add(engine, 1, 2)
    with engine.lock:
        held.hold_rest()
    (lane,) = run(engine, 1.01)
    assert lane is next_one
    (ended,) = run(engine, 1.02)
    assert ended is held
    run(engine, 1.03, [ended])
    assert not held.active


def test_what_waits_in_a_partition_that_is_given_up_waits_no_more(engine):
    add(engine, 1, 2)
    with engine.lock:
        engine.partitions[5].drain()
        engine.owned(0.5)
    assert engine.limits.waits() == []
    engine.limits.give(2.0)
    for lane in (run(engine, 2.0), run(engine, 2.0)):
        assert engine.limits.covers(lane[0]) is False


def test_a_limit_that_is_lifted_lets_all_go_and_the_engine_is_as_before(engine):
    add(engine, 1, 2)
    engine.limits.put_in_force({}, 0.1)
    assert engine.runs.limited is None
    assert [run(engine, 0.1)[0].queue[0].id for _ in range(2)] == [1, 2]
    engine.limits.put_in_force({}, 0.2)
    assert engine.limits.next_at(0.2) is None


def test_what_is_parked_and_waits_beyond_the_next_turns_leaves_memory_and_comes_back_turn_by_turn(engine):
    lanes = add(engine, *range(1, FEW + 4))
    partition = engine.partitions[5]
    with engine.lock:
        for lane in lanes:  # each failed before, and is due again
            event = lane.queue.popleft()
            engine.outcomes.note(lane, event, DEFERRED)
            event.parked.saved()
            event.parked.load()
            lane.queue.append(event)
    engine.limits.give(1.0)
    away = [each.park for each in partition.parked.pending.values() if each.row.stage.value == "unsaved"]
    delays = sorted(each.delay for each in away if each.delay != 1.5)
    assert len(delays) == 3
    assert [round(after - before) for before, after in pairwise(delays)] == [1, 1]
    assert delays[-1] < LONGEST
