"""What a poll may bring: a question, and a step of its own for what stands in the way of reading on."""

import time

import pytest
from hand_moved import HandMoved

from partbox.handlers import Handlers
from partbox.worker.engine.credits import Credit
from partbox.worker.engine.runs import STUCK

WINDOW = 1_000  # the default


@pytest.fixture
def rig() -> HandMoved:
    handlers = Handlers()
    handlers.on("Counted")(lambda event: None)
    return HandMoved(handlers)


def credit(backlog: int, *, is_enough: bool) -> Credit:
    return Credit([], [], 1, 1, backlog, is_enough, set())


@pytest.mark.parametrize(("backlog", "is_enough", "late", "worth"), [
    (0, False, True, False),
    (1, False, False, False),
    (1, False, True, True),
    (1, True, False, True),
])  # fmt: skip
def test_a_poll_is_worth_its_cost_for_enough_room_or_for_any_if_the_last_was_long_ago(
    backlog: int, is_enough: bool, late: bool, worth: bool
) -> None:
    assert credit(backlog, is_enough=is_enough).is_worth(late=late) is worth


def test_what_was_read_and_is_not_saved_takes_room(rig: HandMoved) -> None:
    rig.read(*range(1, 101))
    assert rig.engine.credits.ask([rig.partition]).rooms == [WINDOW - 100]


def test_to_ask_parks_nothing_and_names_what_runs_in_a_full_window(rig: HandMoved) -> None:
    rig.read(*range(1, WINDOW + 1))
    credits, parked = rig.engine.credits, rig.partition.parked
    assert credits.ask([rig.partition]).stuck == set(), "nothing runs"
    with rig.engine.lock:
        rig.engine.runs.begin(rig.lane, time.monotonic())
    lane = rig.lane
    lane.current = lane.queue.popleft()
    asked = credits.ask([rig.partition])
    assert (asked.rooms, asked.stuck, parked.pending) == ([0], {rig.partition}, {})
    credits.unstick(asked.stuck, lane.started + STUCK / 2)
    assert not parked.pending, "it has not run for long"
    credits.unstick(asked.stuck, lane.started + STUCK + 1)
    assert sorted(parked.pending) == list(range(1, WINDOW + 1))


def test_where_no_bytes_are_left_whatever_runs_stands_in_the_way(rig: HandMoved) -> None:
    rig.read(1)
    with rig.engine.lock:
        rig.partition.payload_bytes.add(1, 1 << 50)
        rig.engine.runs.begin(rig.lane, time.monotonic())
    credits = rig.engine.credits
    assert credits.recount() == {rig.partition}
    assert credits.starved
    assert credits.ask([rig.partition]).rooms == [0]
    with rig.engine.lock:
        rig.partition.payload_bytes.drop([1])
    assert credits.recount() == set()
    assert not credits.starved
