"""Lanes and the line of a partition, while a runner takes from them without the lock."""

from collections import deque
from typing import Any
from unittest.mock import patch

import pytest
from contexts import row
from hypothesis import given
from hypothesis import strategies as st

from partbox.codecs import Codecs
from partbox.events import ClaimContext, DeliveredEvent
from partbox.handlers import Routes
from partbox.protocol.rows import LooseRows, OwnedPartition, StoredRow
from partbox.worker.engine import shared_lane_types
from partbox.worker.engine.destination import Destination
from partbox.worker.engine.engine import Engine
from partbox.worker.engine.partition import Lane, Partition
from partbox.worker.engine.scheduler import LANE_COST, LaneProgress, WatchedLanes
from partbox.worker.engine.shared_lane_types import SharedLaneTypes

KEY = ("Key", "k")
EVERYTHING: Any = Routes({}, "the handler")


class Taken(deque[Any]):
    """The queue of a lane whose runner takes the next at the worst moment: as four are left in it."""

    taken: Any = None

    def pop(self) -> Any:  # type: ignore[override]  # always the last
        if len(self) == 4 and self.taken is None:
            self.taken = super().popleft()
        return super().pop()


@pytest.fixture
def engine() -> Engine:
    engine = Engine(2)
    engine.claims.adopt([OwnedPartition(5, 1, "1:1:", 0, 0, 0, None)], 0.0)
    return engine


@pytest.fixture
def partition(engine: Engine) -> Partition:
    return engine.partitions[5]


def filled(lane: Lane, *ids: int) -> Taken:
    """It has these events, or the rows of these if it is a line."""
    claim = ClaimContext(1, "default", Codecs())
    lane.queue = queue = Taken(row(id) if lane.claim else DeliveredEvent(row(id), claim) for id in ids)
    return queue


def test_parking_a_lane_while_a_runner_takes_its_first_event_holds_the_rest(
    engine: Engine, partition: Partition
) -> None:
    with engine.lock:
        lane = partition.ensure_lane(KEY)
        queue = filled(lane, *range(1, 7))
        lane.park_waiting()
        assert (queue.taken.id, [each.id for each in partition.parked.chains[KEY].rows]) == (1, [2, 3, 4, 5, 6])


def test_splitting_a_shared_lane_while_a_runner_takes_its_first_event_moves_the_rest(
    engine: Engine, partition: Partition
) -> None:
    with engine.lock:
        queue = filled(partition.shared_lane, *range(1, 7))
        take_split_lanes = partition.lanes[KEY].queue
        assert (partition.shared_lane.build_event(queue.taken).id, [each.id for each in take_split_lanes]) == (
            1,
            [2, 3, 4, 5, 6],
        )


def test_a_partition_may_use_its_shared_lane_again_after_its_split_lanes_are_held(
    engine: Engine, partition: Partition
) -> None:
    with engine.lock:
        filled(partition.shared_lane, 1, 2)
        partition.lanes[KEY].park_waiting()
        assert not partition.may_share_lane
        assert partition.take_split_lanes() == []
        assert partition.may_share_lane


def test_an_event_that_is_put_back_goes_before_the_rest_of_its_meanwhile_split_shared_lane(
    engine: Engine, partition: Partition
) -> None:
    shared_lane = partition.shared_lane
    with engine.lock:
        queue = filled(shared_lane, 1, 2, 3)
        engine.scheduler.begin_transactional(shared_lane, 0.0)
        event = shared_lane.build_event(queue.popleft())
        lane = partition.lanes[KEY]
    engine.outcomes.put_back(shared_lane, event)
    with engine.lock:
        assert ([*shared_lane.queue], [each.id for each in lane.queue]) == ([], [1, 2, 3])


def test_the_last_event_of_a_shared_lane_is_held_if_its_key_is_blocked_when_it_is_put_back(
    engine: Engine, partition: Partition
) -> None:
    shared_lane = partition.shared_lane
    with engine.lock:
        queue = filled(shared_lane, 5)
        engine.scheduler.begin_transactional(shared_lane, 0.0)
        event = shared_lane.build_event(queue.popleft())
        partition.parked.load_rows([StoredRow(5, 4, *KEY, "ready", 0, None, False, None)], LooseRows(), 0.0)
    engine.outcomes.put_back(shared_lane, event)
    with engine.lock:
        assert ([*shared_lane.queue], [each.id for each in partition.parked.chains[KEY].rows]) == ([], [4, 5])


@pytest.mark.parametrize("meanwhile", ["nothing", "it stops", "it is read anew", "something was done before"])
def test_no_event_joins_a_list_from_a_partition_that_changed_after_its_lane_was_found(
    engine: Engine, partition: Partition, meanwhile: str
) -> None:
    with engine.lock:
        lane = partition.ensure_lane(KEY)
        filled(lane, 1, 2)
        engine.scheduler.begin_transactional(lane, 0.0)
        partition.is_stopping = meanwhile == "it stops"
        partition.incarnation += meanwhile == "it is read anew"
        if meanwhile == "something was done before":
            partition.resumption.remembered.add((9, b""))
    joined = engine.outcomes.join_lanes([lane], Destination(EVERYTHING, "the handler"), 10, 10)
    assert [event.id for each in joined for event in each.events] == ([1, 2] if meanwhile == "nothing" else [])


def test_a_list_takes_no_more_lanes_than_it_needs_events(engine: Engine, partition: Partition) -> None:
    with engine.lock:
        lanes = [partition.ensure_lane(("Key", str(number))) for number in range(5)]
        for lane in lanes:
            filled(lane, 1, 2, 3)
        engine.scheduler.make_ready(lanes)
    to = Destination(EVERYTHING, "the handler")
    assert [engine.scheduler.take_joining(to, deep, most, 0.0) for deep, most in ((3, 4), (1, 2))] == [
        lanes[:2],
        lanes[2:4],
    ]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kinds", ["AAA", "AAB", "BAA", "ABA"])
def test_a_list_from_a_shared_lane_ends_before_an_event_for_another_handler(
    engine: Engine, partition: Partition, kinds: str, known: bool
) -> None:
    routes = Routes({("B", None): "another"}, "the handler")
    with engine.lock:
        shared_lane = partition.shared_lane
        shared_lane.claim = ClaimContext(1, "default", Codecs())
        rows = [(5, id, b"e" * 16, kind, "Key", "k") for id, kind in enumerate(kinds)]
        shared_lane.queue.extend(rows)
        if known:
            shared_lane.types.add({*kinds}, replace=True)
        engine.scheduler.begin_transactional(shared_lane, 0.0)
    joined = engine.outcomes.join_lanes([shared_lane], Destination(routes, "the handler"), 10, 10)
    taken = kinds.split("B", maxsplit=1)[0]
    assert [event.event_type for each in joined for event in each.events] == [*taken]
    assert [*shared_lane.queue] == rows[len(taken) :]


def test_a_finished_list_does_not_count_as_running_though_its_shared_lane_has_not_ended(
    engine: Engine, partition: Partition
) -> None:
    with engine.lock:
        shared_lane = partition.shared_lane
        shared_lane.claim = ClaimContext(1, "default", Codecs())
        shared_lane.queue.extend((5, id, b"e" * 16, "A", "Key", "k") for id in (1, 2, 3))
        engine.scheduler.begin_transactional(shared_lane, 1.0)
    joined = engine.outcomes.join_lanes([shared_lane], Destination(EVERYTHING, "the handler"), 2, 2)
    assert engine.scheduler.list_running() == [shared_lane]
    assert engine.outcomes.finish_list(joined) == []
    assert (engine.scheduler.list_running(), shared_lane.in_hand) == ([], ())
    engine.scheduler.split_blocking_lanes(
        WatchedLanes(8.0, woke_in_time=True, shared_lanes={shared_lane: LaneProgress(1.0, 1)}), 9.0, in_time=True
    )
    assert [row[1] for row in shared_lane.queue] == [3]


@pytest.mark.parametrize("took", [0.9, 1.1])
def test_a_shared_lane_is_not_split_while_its_list_is_faster_than_lanes_would_be(
    engine: Engine, partition: Partition, took: float
) -> None:
    with engine.lock:
        shared_lane = partition.shared_lane
        shared_lane.claim = ClaimContext(1, "default", Codecs())
        shared_lane.queue.extend((5, id, b"e" * 16, "A", "Key", "k") for id in range(1, 102))
        engine.scheduler.begin_transactional(shared_lane, 1.0)
    engine.outcomes.join_lanes([shared_lane], Destination(EVERYTHING, "the handler"), 100, 100)
    now = 1.0 + took * LANE_COST * 100
    glance = WatchedLanes(now - 0.0001, woke_in_time=True, shared_lanes={shared_lane: LaneProgress(1.0, 1)})
    engine.scheduler.split_blocking_lanes(glance, now, in_time=True)
    assert len(shared_lane.queue) == (took < 1)


def test_a_shared_lane_of_which_no_handler_runs_is_not_split(engine: Engine, partition: Partition) -> None:
    with engine.lock:
        shared_lane = partition.shared_lane
        shared_lane.claim = ClaimContext(1, "default", Codecs())
        shared_lane.queue.extend([(5, 1, b"e" * 16, "A", "Key", "k")])
        engine.scheduler.begin_transactional(shared_lane, 1.0)
    engine.scheduler.split_blocking_lanes(
        WatchedLanes(1.5, woke_in_time=True, shared_lanes={shared_lane: LaneProgress(1.0, 1)}), 2.0, in_time=True
    )
    assert len(shared_lane.queue) == 1


PAGE = st.frozensets(st.sampled_from("ABC"), min_size=1)
STEPS = st.one_of(PAGE, st.sampled_from(["one is taken", "it is put back"]))


@given(st.lists(STEPS), st.integers(1, 3))
def test_a_shared_lane_knows_the_types_of_all_its_waiting_events(steps: list[frozenset[str] | str], most: int) -> None:
    types, waiting, in_hand = SharedLaneTypes(), list[str](), list[str]()
    with patch.object(shared_lane_types, "MAX_TYPES", most):
        for step in steps:
            if isinstance(step, frozenset):
                types.add(step, replace=not waiting)
                waiting += sorted(step)
            elif step == "one is taken":
                in_hand, waiting = waiting[:1], waiting[1:]
            else:
                types.add({*in_hand}, replace=False)
                waiting, in_hand = in_hand + waiting, []
            assert types.known_types is None or types.known_types >= {*waiting}


def test_an_event_of_a_list_that_was_read_before_a_lost_connection_is_not_set_aside(
    engine: Engine, partition: Partition
) -> None:
    """The event is read again, and its result is remembered until then. A row of the event would stay for ever."""
    lane = partition.ensure_lane(KEY)
    event = DeliveredEvent(row(1), ClaimContext(1, "default", Codecs()))
    with engine.lock:
        partition.reset(0.0)
        partition.begin_reading(OwnedPartition(5, 2, "1:1:", 0, 0, 0, None), 0.0)
        lane.current_event, lane.incarnation = event, partition.incarnation
        engine.outcomes.evict_slow(lane)
    assert event.parked is None
