"""What a poll may bring: a question, and a step of its own for what stands in the way of reading on."""

import pytest
from model_handlers import Shape
from process import Process
from world import World

from partbox.worker.engine.credits import Credit
from partbox.worker.engine.runs import STUCK

WINDOW = 8


@pytest.fixture
def process(world: World) -> Process:
    process = world.join(Shape(1, window=WINDOW, max_parked=100))
    world.assign([0], process)
    world.go_on(process, "poller")
    return process


def read(world: World, process: Process, count: int) -> None:
    for _ in range(count):
        world.publish(0, 0, "k")
    world.end(0, commit=True)
    world.go_on(process, "poller")


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


def test_what_was_read_and_is_not_saved_takes_room(world: World, process: Process) -> None:
    read(world, process, 3)
    assert process.engine.credits.ask([process.engine.partitions[0]]).rooms == [WINDOW - 3]


def test_to_ask_parks_nothing_and_names_what_runs_in_a_full_window(world: World, process: Process) -> None:
    read(world, process, WINDOW)
    credits, partition = process.engine.credits, process.engine.partitions[0]
    pending = partition.parked.pending
    assert credits.ask([partition]).stuck == set(), "nothing runs"
    world.go_on(process, process.actors[-1])
    began = world.clock.now
    asked = credits.ask([partition])
    assert (asked.rooms, asked.stuck, pending) == ([0], {partition}, {})
    credits.unstick(asked.stuck, began + STUCK / 2)
    assert not pending, "it has not run for long"
    credits.unstick(asked.stuck, began + STUCK + 1)
    assert sorted(pending) == list(range(1, WINDOW + 1))


def test_where_no_bytes_are_left_whatever_runs_stands_in_the_way(world: World, process: Process) -> None:
    read(world, process, 1)
    world.go_on(process, process.actors[-1])
    credits, partition = process.engine.credits, process.engine.partitions[0]
    with process.engine.lock:
        partition.payload_bytes.add(1, 1 << 50)
    assert credits.recount() == {partition}
    assert credits.starved
    assert credits.ask([partition]).rooms == [0]
    with process.engine.lock:
        partition.payload_bytes.drop([1])
    assert credits.recount() == set()
    assert not credits.starved
