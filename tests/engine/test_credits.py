"""What a poll may bring: a question, and a step of its own for what stands in the way of reading on."""

import pytest
from model_handlers import Shape
from process import Process
from world import World

from partbox.protocol.cursor import usual_late_limits
from partbox.worker.engine.credits import LONG_PATIENCE, SHORT_PATIENCE, Credit
from partbox.worker.engine.read_budget import ReadBounds, ReadBudget
from partbox.worker.engine.scheduler import SLOW_AFTER

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
    return Credit([], [], 1, 1, backlog, is_enough, 0.05, set())


@pytest.mark.parametrize(("backlog", "is_enough", "waited", "worth"), [
    (0, False, 0.06, False),
    (1, False, 0.05, False),
    (1, False, 0.06, True),
    (1, True, 0.0, True),
])  # fmt: skip
def test_a_poll_is_worth_its_cost_for_enough_room_or_for_any_if_the_last_was_long_ago(
    backlog: int, is_enough: bool, waited: float, worth: bool
) -> None:
    assert credit(backlog, is_enough=is_enough).is_poll_worthwhile(waited) is worth


def test_records_that_were_read_and_are_not_saved_take_room(world: World, process: Process) -> None:
    read(world, process, 3)
    assert process.engine.credits.grant_credit([process.engine.partitions[0]]).rooms == [WINDOW - 3]


def test_a_poll_for_little_room_waits_longer_while_every_runner_could_take_a_lane(
    world: World, process: Process
) -> None:
    read(world, process, 3)
    credits, partition = process.engine.credits, process.engine.partitions[0]
    assert credits.grant_credit([partition]).patience == LONG_PATIENCE
    world.go_on(process, process.actors[-1])
    assert credits.grant_credit([partition]).patience == SHORT_PATIENCE, "the runner has it all"


@pytest.mark.parametrize(("window", "room"), [(100, 1), (WINDOW, 0)])
def test_a_caught_up_partition_has_room_for_one_more_though_its_part_of_the_window_is_full(
    world: World, window: int, room: int
) -> None:
    process = world.join(Shape(1, window=100, max_parked=100))
    world.assign([0], process)
    for _ in range(2):  # the first poll is of it alone
        world.go_on(process, "poller")
    read(world, process, WINDOW)
    partition, budget = process.engine.partitions[0], ReadBudget(ReadBounds(2, window, 100, 1 << 26))
    budget._windows = (WINDOW, WINDOW)
    assert (partition.cursor.is_caught_up, budget.room_of(partition)) == (True, room)


def test_asking_for_credit_parks_nothing_and_names_partitions_with_running_events_in_a_full_window(
    world: World, process: Process
) -> None:
    read(world, process, WINDOW)
    credits, partition = process.engine.credits, process.engine.partitions[0]
    pending = partition.parked.pending_parks
    assert credits.grant_credit([partition]).blocked_by_slow == set(), "nothing runs"
    world.go_on(process, process.actors[-1])
    began = world.clock.now
    asked = credits.grant_credit([partition])
    assert (asked.rooms, asked.blocked_by_slow, pending) == ([0], {partition}, {})
    credits.evict_slow(asked.blocked_by_slow, began + SLOW_AFTER / 2)
    assert not pending, "it has not run for long"
    credits.evict_slow(asked.blocked_by_slow, began + SLOW_AFTER + 1)
    assert sorted(pending) == list(range(1, WINDOW + 1))


def test_every_partition_with_a_running_handler_blocks_reading_when_no_bytes_are_left(
    world: World, process: Process
) -> None:
    read(world, process, 1)
    world.go_on(process, process.actors[-1])
    credits, partition = process.engine.credits, process.engine.partitions[0]
    with process.engine.lock:
        partition.payload_bytes.add(1, 1 << 50)
    assert credits.recount_bytes() == {partition}
    assert credits.is_starved
    assert credits.grant_credit([partition]).rooms == [0]
    with process.engine.lock:
        partition.payload_bytes.drop([1])
    assert credits.recount_bytes() == set()
    assert not credits.is_starved


def test_a_partition_may_use_its_share_of_the_waiting_rows_and_what_other_partitions_leave(
    world: World,
) -> None:
    process = world.join(Shape(1, window=100, max_parked=100))
    world.assign([0, 1], process)
    for _ in range(2):
        world.go_on(process, "poller")
    one, other = (process.engine.partitions[number] for number in (0, 1))
    budget = ReadBudget(ReadBounds(page=100, window=100, max_parked=100, window_bytes=1 << 26, max_waiting=256 * 10))

    def room(mine: int, others: int) -> int:
        one.parked.waiting_count, other.parked.waiting_count = mine, others
        budget.count_free_bytes([one, other])
        return budget.find_unshared_room(one)

    assert [room(0, 0), room(4, 10), room(12, 0), room(18, 0)] == [20, 6, 8, 2]
    assert [room(20, 0), room(12, 10), room(9, 40)] == [0, 0, 1]
    # Waiting rows that were parked ahead of the cursor do not go on before their records are read.
    one.parked.ahead_ids = {1, 2, 3}
    assert [room(20, 0), room(12, 10), room(9, 40), room(0, 0)] == [3, 3, 3, 20]
    one.parked.ahead_ids = set()
    one.parked.waiting_count = other.parked.waiting_count = 0


def test_a_search_that_takes_too_long_is_halved_until_it_ends_in_time_and_then_grows_again() -> None:
    """A subscription without a floor searches the whole log: with stretches of one length it would never get on."""
    budget, usual = ReadBudget(ReadBounds(10_000, 1_000, 1_000, 1 << 20, 10_000)), usual_late_limits()
    assert budget.compute_late_limits(1, 1 << 30) == usual
    for halved in (2, 4, 8):
        budget.note_timeout([100])
        assert budget.compute_late_limits(1, 1 << 30) == (usual.records // halved, usual.ids // halved)
    for _ in range(40):
        budget.note_timeout([100])
    assert budget.compute_late_limits(1, 1 << 30) == (1, 1)
    before = budget.compute_late_limits(1, 1 << 30)
    for _ in range(100):
        budget.note_poll_in_time()
        now = budget.compute_late_limits(1, 1 << 30)
        assert before <= now <= usual
        before = now
    assert before == usual
