"""What a process owns: partitions on their way from one to another, and what was lost by mistake."""

import pytest
from process import Process, Shape
from rest import process_once
from world import World

from partbox.worker.poller.listener import Listener
from partbox.worker.slot import PLAN_COUNT


@pytest.fixture
def process(world: World) -> Process:
    """It has read three records of its only partition, and none has been started."""
    process = world.join(Shape(4))
    world.assign([0], process)
    for _ in range(3):
        world.publish(0, 0, None)
    world.end(0, commit=True)
    for _ in range(2):
        world.go_on(process, "poller")
    return process


def tick(process: Process) -> object:
    return process.poller.ownership.tick(process.watcher.connection(process))  # type: ignore[arg-type]


def test_a_process_awaits_the_release_of_an_assigned_partition_that_another_owns(
    world: World, process: Process
) -> None:
    row = world.database.partitions[1]
    row.owner = world.database.register()
    world.assign([1], process)
    assert tick(process).awaits_release  # type: ignore[attr-defined]
    row.owner = None
    assert not tick(process).awaits_release  # type: ignore[attr-defined]
    assert process.engine.partitions.keys() == {0, 1}


def test_a_new_plan_of_the_supervisor_counts_as_news_until_the_next_tick(process: Process) -> None:
    ownership = process.poller.ownership
    assert not ownership.is_replanned
    process.slot[PLAN_COUNT] += 1
    assert ownership.is_replanned
    tick(process)
    assert not ownership.is_replanned


def test_a_new_plan_stops_being_news_at_the_next_tick_of_a_process_without_an_identity(process: Process) -> None:
    process.poller.ownership.instance_id = None
    process.slot[PLAN_COUNT] += 1
    tick(process)
    assert not process.poller.ownership.is_replanned


def test_a_change_by_others_in_this_subscription_wakes_the_poller_and_is_news_until_the_next_tick(
    process: Process,
) -> None:
    context, ownership = process.poller.context, process.poller.ownership
    listener = Listener(context)
    context.wakeup.clear()
    listener.handle_notification("changed others")
    assert not ownership.is_replanned
    assert not context.wakeup.is_set()
    listener.handle_notification("changed default")
    assert ownership.is_replanned
    assert context.wakeup.is_set()
    tick(process)
    assert not ownership.is_replanned


def test_a_process_is_busy_until_all_that_it_has_read_is_saved_and_nothing_is_parked(
    world: World, process: Process
) -> None:
    engine = process.engine
    assert not engine.is_quiet(), "what it has read waits"
    process_once(world, process)
    world.clock.now += 1
    world.go_on(process, "saver")
    assert engine.is_quiet()
    process.engine.partitions[0].parked.open_count = 1
    assert not engine.is_quiet()


def test_the_next_save_is_hurried_as_soon_as_a_partition_may_be_released(world: World, process: Process) -> None:
    hurried = process.poller.saver._has_release
    runner = next(each for each in process.actors if each.startswith("runner"))
    world.go_on(process, runner, through=False)
    world.assign([0], None)
    tick(process)
    assert not hurried.is_set(), "a handler runs"
    process.finish(runner, [None])
    assert hurried.is_set()


def test_a_released_partition_is_not_saved_again_when_a_lane_that_began_nothing_touches_it(
    world: World, process: Process
) -> None:
    engine, partition = process.engine, process.engine.partitions[0]
    world.assign([0], None)
    tick(process)
    world.clock.now += 1
    world.go_on(process, "saver")
    assert world.database.partitions[0].owner is None
    with engine.lock:
        engine.mark_dirty(partition)
        assert engine.take_dirty() == []


def test_a_partition_that_was_lost_by_mistake_is_taken_up_again_at_the_next_tick(
    world: World, process: Process
) -> None:
    """Nothing has changed in the database, whose digest is the one that is known."""
    for _ in range(2):  # settled
        tick(process)
    lost = process.engine.partitions[0]
    process.poller.ownership.drop_tenures([lost.tenure])
    tick(process)
    assert process.engine.partitions[0] is not lost
    assert world.database.partitions[0].epoch == process.engine.partitions[0].epoch


def test_a_floor_claimed_after_the_shared_page_bounds_no_search_from_it(world: World, process: Process) -> None:
    """It holds for what is open after the claim, and says nothing of what the page did not see."""
    process_once(world, process)
    for _ in range(3):
        world.clock.now += 0.06
        world.go_on(process, "poller")
    late = world.publish(0, 0, None)
    world.publish(1, 1, None)
    world.end(1, commit=True)
    world.end(0, commit=True)
    process.poller.reader.add_claimed(world.database.log.drawn)
    world.go_on(process, "poller")
    process_once(world, process)
    assert late.number in world.ran
