"""Lanes that wait for their turn: the timer, what does not wait any more, and memory."""

import pytest
from contexts import row

from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent
from partbox.protocol.limit_addresses import EventKeys
from partbox.protocol.limits import Limit, Rate
from partbox.protocol.parking import RowState
from partbox.protocol.rows import LooseRows, OwnedPartition, StoredRow
from partbox.protocol.verdict import Verdict
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.limited_queue import MIN_LANES
from partbox.worker.engine.parked_scheduler import SuspectRow
from partbox.worker.engine.partition import Lane
from partbox.worker.engine.scheduler import NoLane

EVERY = Limit(Rate(256.0))  # one start in a second for each partition
KEYS = EventKeys("handler", None, "type", "tenant")
CLAIM = ClaimContext(1, "default", Codecs())
DEFERRED = Verdict(RowState.DEFERRED, 0, 1.5, True, None)


@pytest.fixture
def engine():
    """An engine that owns one partition, and all its events have one limit, in force from 0.0 on."""
    engine = Engine(2)
    engine.woken = 0

    def poll():
        engine.woken += 1

    engine.wakes.wake_poller = poll
    engine.limits.keys_of = lambda event: KEYS
    engine.limits.set_limits({"handler": EVERY}, 0.0)
    engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
    return engine


def add(engine, *ids):
    """Lanes with one event each."""
    partition, lanes = engine.partitions[5], []
    for id in ids:
        lane = Lane(partition, ("Key", f"k{id}"))
        lane.queue.append(DeliveredEvent(row(id, f"k{id}"), CLAIM))
        partition._lanes[lane.key] = lane
        lanes.append(lane)
    with engine.lock:
        engine.scheduler.make_ready(lanes)
    return lanes


def run(engine, now, ended=()):
    return engine.scheduler.take_next_lanes(ended, now, trusted=True, waits=False)


def test_the_poller_is_woken_only_for_a_turn_that_is_sooner_than_the_one_it_knows_of(engine):
    add(engine, 1, 2, 3)
    assert engine.limits.find_next_check(0.0) == pytest.approx(1.0)
    assert run(engine, 0.1) is NoLane.IDLE
    assert engine.woken == 0
    engine.limits.set_limits({"handler": Limit(Rate(2_560.0))}, 0.1)
    assert engine.woken == 1
    assert engine.limits.find_next_check(0.1) == pytest.approx(0.19)
    assert not engine.limits.is_due(0.18)
    assert engine.limits.is_due(0.2)
    engine.limits.give_permits(0.2)
    (lane,) = run(engine, 0.2)
    assert lane.queue[0].id == 1
    assert engine.limits.has_permit(lane, 1)
    assert not engine.limits.has_permit(lane, 2)
    assert engine.woken == 1  # who is awake asks by itself


def test_a_runner_that_makes_the_next_turn_known_wakes_a_poller_that_knows_of_none(engine):
    assert engine.limits.find_next_check(0.0) is None
    add(engine, 1)
    assert run(engine, 0.1) is NoLane.IDLE
    assert run(engine, 0.2) is NoLane.IDLE
    assert engine.woken == 1


def test_a_lane_that_no_longer_waits_costs_no_turn_and_ends_as_any_lane_does(engine):
    held, next_one = add(engine, 1, 2)
    with engine.lock:
        held.park_waiting()
    (lane,) = run(engine, 1.01)
    assert lane is next_one
    (ended,) = run(engine, 1.02)
    assert ended is held
    run(engine, 1.03, [ended])
    assert not held.is_active


def test_lanes_of_a_partition_that_is_given_up_no_longer_wait_for_permits(engine):
    add(engine, 1, 2)
    with engine.lock:
        engine.partitions[5].drain()
        engine.on_ownership_change(0.5)
    assert engine.limits.list_waits() == []
    engine.limits.give_permits(2.0)
    for lane in (run(engine, 2.0), run(engine, 2.0)):
        assert engine.limits.has_permit(lane[0]) is False


def test_lifting_a_limit_lets_all_waiting_lanes_run_and_leaves_the_engine_as_before(engine):
    add(engine, 1, 2)
    engine.limits.set_limits({}, 0.1)
    assert engine.scheduler.limited_queue is None
    assert [run(engine, 0.1)[0].queue[0].id for _ in range(2)] == [1, 2]
    engine.limits.set_limits({}, 0.2)
    assert engine.limits.find_next_check(0.2) is None


def test_parked_events_that_wait_beyond_the_next_turns_leave_memory_and_come_back_turn_by_turn(engine):
    lanes = add(engine, *range(1, MIN_LANES + 4))
    partition = engine.partitions[5]
    with engine.lock:
        for lane in lanes:  # each failed before, and is due again
            event = lane.queue.popleft()
            engine.outcomes.note_verdict(lane, event, DEFERRED)
            event.parked.note_saved()
            event.parked.mark_loaded()
            lane.queue.append(event)
    engine.limits.give_permits(1.0)
    away = [each.parked_save for each in partition.parked.pending_parks.values() if each.row.stage.value == "unsaved"]
    delays = sorted(each.delay for each in away if each.delay != 1.5)
    assert len(delays) == 3
    assert delays == pytest.approx([MIN_LANES, MIN_LANES + 1, MIN_LANES + 2])  # after those that stay in line


def put_away(engine, *ids, now):
    """Have events fill a window, so that they leave it, and save them."""
    partition = engine.partitions[5]
    partition.finish_loading(0)
    add(engine, *ids)
    with engine.lock:
        engine.scheduler.evict_slow([partition], now)
    save(engine, now)


def save(engine, now):
    """Save what is parked; the ids."""
    parked = engine.partitions[5].parked
    with engine.lock:
        parks, done_ids, _, _ = parked.take_unsaved()
        for key in parked.note_committed(parks, done_ids, now):
            engine.schedule_wakeup(engine.partitions[5], key)
    return [each.row.id for each in parks]


def come_back(engine, now):
    """Fetch and queue the rows that may run; the ids of the heads."""
    woken, _ = engine.parked_scheduler.take_due_keys(now, 50)
    rows = [each for one in woken for each in one.rows]
    charged = [SuspectRow(one.partition, one.rows[0]) for one in woken if one.rows[0].is_charged]
    engine.parked_scheduler.note_charged(charged)
    engine.parked_scheduler.queue_woken(woken, {each.id: row(each.id, f"k{each.id}") for each in rows}, {})
    return [one.rows[0].id for one in woken]


def test_evicted_rows_come_back_in_order_and_without_a_save_as_the_queue_gets_short(engine):
    put_away(engine, *range(1, 11), now=0.5)
    parked, (waits,) = engine.partitions[5].parked, engine.limits.list_waits()
    assert (waits.events, waits.since) == (10, 0.5)
    assert (parked.open_count, parked.waiting_count) == (0, 10)
    assert come_back(engine, 0.6) == []
    engine.limits.give_permits(0.7)
    assert come_back(engine, 0.7) == [1, 2]  # as many as start within the next two seconds
    for id in range(1, 9):
        (lane,) = run(engine, id + 0.01)
        event = lane.take_first()
        assert event.id == id
        assert engine.outcomes.settle_event(lane, event, None)
        run(engine, id + 0.02, [lane])
        assert save(engine, id + 0.03) == []
        engine.limits.give_permits(id + 0.04)
        assert come_back(engine, id + 0.04) == [id + 2]
    assert parked.waiting_count == 2


def test_new_events_that_wait_for_long_leave_memory_although_no_window_is_full(engine):
    """Else they would hold back the saved cursor, and a crash would repeat all that was done after them."""
    engine.partitions[5].finish_loading(0)
    add(engine, *range(1, 11))
    engine.limits.give_permits(1.5)
    assert save(engine, 1.5) == []
    engine.limits.give_permits(3.0)
    assert save(engine, 3.0) == [*range(3, 11)]  # two start within the next two seconds


def test_an_evicted_row_behind_another_one_of_its_key_takes_nobodys_place(engine):
    """A list that fails under the circuit of a value defers several events of one key. The probes would end."""
    put_away(engine, *range(1, 6), now=0.5)
    parked = engine.partitions[5].parked
    evicted = engine.limits._queue._evicted_rows["handler", None]
    # Events 1 and 2 wait behind event 3, as if all three were of one key.
    first, second, third = (evicted.popleft() for _ in range(3))
    parked.chains[third.key].rows = [third.row, first.row, second.row]
    evicted.extendleft([third, second._replace(key=third.key), first._replace(key=third.key)])
    engine.limits.give_permits(0.7)
    assert [each.row.id for each in engine.limits._queue._returning_rows["handler", None]] == [3, 4]


def test_events_that_come_back_go_before_events_that_were_just_read(engine):
    put_away(engine, 1, 2, now=0.5)
    add(engine, 3)
    engine.limits.give_permits(0.7)
    assert come_back(engine, 0.7) == [1, 2]
    (lane,) = run(engine, 1.01)
    assert lane.queue[0].id == 1


def test_a_row_that_is_marked_as_waiting_is_evicted_again_without_a_save(engine):
    put_away(engine, *range(1, MIN_LANES + 4), now=0.5)
    parked = engine.partitions[5].parked
    with engine.lock:  # as after a claim: nobody knows for whom they wait
        for key, chain in parked.chains.items():
            chain.rows[0].due = 0.0
            engine.schedule_wakeup(engine.partitions[5], key)
    assert come_back(engine, 0.6) == [*range(1, MIN_LANES + 4)]
    engine.limits.give_permits(2.0)
    assert save(engine, 2.0) == []
    assert [row.id for row in parked.list_blocking() if not row.is_loaded] == [
        MIN_LANES + 1,
        MIN_LANES + 2,
        MIN_LANES + 3,
    ]
    assert (parked.open_count, parked.waiting_count) == (0, MIN_LANES + 3)


def test_events_without_an_aggregate_come_back_before_they_are_due_by_their_ids(engine):
    partition = engine.partitions[5]
    partition.finish_loading(0)
    lanes = [Lane(partition, (None, id)) for id in range(1, 6)]
    for lane in lanes:
        lane.queue.append(DeliveredEvent(row(lane.key[1], None), CLAIM))
    with engine.lock:
        engine.scheduler.make_ready(lanes)
        engine.scheduler.evict_slow([partition], 0.5)
    save(engine, 0.5)
    engine.limits.give_permits(0.7)
    assert engine.parked_scheduler.take_keyless() == {5}
    asked = engine.parked_scheduler.build_due_query([5], 100)
    assert asked.early_ids == [1, 2]
    engine.parked_scheduler.admit_due(asked, [], set(), 0.7)
    assert engine.parked_scheduler.take_keyless() == set()


def test_all_events_that_wait_for_a_lifted_limit_come_back(engine):
    put_away(engine, *range(1, 11), now=0.5)
    engine.limits.set_limits({}, 0.6)
    assert come_back(engine, 0.6) == [*range(1, 11)]
    assert engine.limits.list_waits() == ()


def test_events_evicted_before_their_park_is_saved_come_back_after_the_save(engine):
    partition = engine.partitions[5]
    partition.finish_loading(0)
    add(engine, 1, 2, 3)
    with engine.lock:
        engine.scheduler.evict_slow([partition], 0.5)
    engine.limits.set_limits({}, 0.6)
    assert come_back(engine, 0.6) == []
    save(engine, 0.7)
    engine.limits.give_permits(0.7)
    assert come_back(engine, 0.7) == [1, 2, 3]


def test_evicted_events_of_a_partition_that_is_given_up_are_forgotten(engine):
    put_away(engine, 1, 2, 3, now=0.5)
    with engine.lock:
        engine.partitions[5].drain()
        engine.on_ownership_change(0.6)
    assert engine.limits.list_waits() == []
    engine.limits.give_permits(0.7)
    assert come_back(engine, 0.7) == []


def test_a_long_lane_leaves_a_full_window_and_all_of_it_waits(engine):
    partition = engine.partitions[5]
    (lane,) = add(engine, 1)
    lane.queue.extend(DeliveredEvent(row(id, "k1"), CLAIM) for id in range(2, 9))
    with engine.lock:
        engine.scheduler.evict_slow([partition], 0.5)
        states = {each.row.id: each.row.state for each in partition.parked.pending_parks.values()}
    assert states == {1: "deferred", **dict.fromkeys(range(2, 9), "held")}
    assert (partition.parked.open_count, partition.parked.waiting_count) == (0, 8)


def test_events_read_behind_a_queued_parked_event_are_evicted_from_a_full_window(engine):
    put_away(engine, 1, now=0.5)
    partition = engine.partitions[5]
    engine.limits.give_permits(0.6)
    assert come_back(engine, 0.6) == [1]
    partition.lanes["Key", "k1"].queue.append(DeliveredEvent(row(2, "k1"), CLAIM))
    with engine.lock:
        engine.scheduler.evict_slow([partition], 0.8)
    assert save(engine, 0.8) == [2]
    (lane,) = run(engine, 1.01)
    assert [each.id for each in lane.queue] == [1]


def test_queued_rows_that_were_handed_over_do_not_brake_reading(engine):
    parked = engine.partitions[5].parked
    engine.partitions[5].finish_loading(0)
    rows = [StoredRow(5, id, "Key", "k1", "ready", 0, None, False, None) for id in (1, 2, 3)]
    with engine.lock:
        for key in parked.load_rows(rows, LooseRows(), 0.5):
            engine.schedule_wakeup(engine.partitions[5], key)
    assert (parked.open_count, parked.waiting_count) == (3, 0)
    come_back(engine, 0.5)
    assert (parked.open_count, parked.waiting_count) == (0, 3)


def load_suspects(engine, *ids):
    """Rows of events that may have killed the last owner, each of a key of its own."""
    partition = engine.partitions[5]
    partition.suspects.set_range(100, 100)
    stored = [StoredRow(5, id, "Key", f"k{id}", "ready", 0, None, False, None) for id in ids]
    with engine.lock:
        for key in partition.parked.load_rows(stored, LooseRows(), 0.0):
            engine.schedule_wakeup(partition, key)
        partition.finish_loading(0)


def test_an_event_that_waits_for_a_permit_keeps_no_other_suspect_waiting_for_its_turn(engine):
    """One event of a limit may wait with its attempt counted. The others are charged again when their turn is near."""
    load_suspects(engine, 1, 2, 3, 4)
    assert come_back(engine, 0.1) == [1, 2]
    assert engine.charges.list_waiting_ids() == {1}
    rows = {row.id: row for row in engine.partitions[5].parked.list_blocking()}
    assert (rows[2].state, rows[2].attempts, rows[2].is_suspect, rows[2].is_charged) == ("deferred", 0, True, False)
    engine.parked_scheduler.wake_trials(0.0)
    assert come_back(engine, 0.2) == [3, 4]
    assert save(engine, 0.3) == [2, 3, 4]


def test_suspects_that_were_put_off_for_a_limit_come_back_when_it_is_lifted(engine):
    load_suspects(engine, 1, 2)
    come_back(engine, 0.1)
    save(engine, 0.2)
    engine.limits.set_limits({}, 0.3)
    assert come_back(engine, 0.3) == [2]
