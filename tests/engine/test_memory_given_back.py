"""The memory that a partition took at its largest is given back once all of it is saved, and no event is kept."""

import gc
from sys import getsizeof
from typing import Any

from model_handlers import Shape
from process import Process
from rest import settle_down
from world import World

from partbox import Dead, DeliveredEvent, RetryAfter

MANY = 100


def tables(process: Process) -> dict[str, int]:
    """The bytes of the dicts that a partition keeps as long as it is owned."""
    with process.engine.lock:
        partition = process.engine.partitions[0]
        parked = partition.parked
        kept = {
            "lanes": partition._lanes,
            "sizes": partition.payload_bytes.sizes,
            "finished": partition.progress._finished,
            "chains": parked.chains,
            "deleting": parked.unsaved_deletions,
        }
        return {name: getsizeof(table) for name, table in kept.items()}


def test_parked_events_of_many_keys_leave_no_large_dict_behind(stage: Any) -> None:
    """Each event is for later at first, and done then."""
    world = World(*stage, partitions=1)
    process = world.join(Shape(1_000, "async", window=1_000, max_parked=1_000, window_bytes=1 << 40))
    world.assign([0], process)
    for _ in range(2):
        world.go_on(process, "poller")
    at_first, largest = tables(process), list[dict[str, int]]()
    for number in range(MANY):
        world.publish(0, 0, f"k{number}")
    world.end(0, commit=True)
    for outcome in (RetryAfter(0.001), None):
        world.clock.now += 1
        for _ in range(3):  # what is parked is fetched in several goes
            world.go_on(process, "poller")
        for actor in process.actors[2:]:
            world.go_on(process, actor)
        largest.append(tables(process))
        assert len(process.handling()) == MANY
        for where, _ in reversed(process.handling()):  # the first one last: the cursor waits for it
            process.finish(where, [outcome])
            largest.append(tables(process))
        world.go_on(process, "saver")
    assert min(max(each[name] for each in largest) for name in at_first) > 1_000, largest
    world.publish(0, 0, "another")  # something more, so there is another save
    world.end(0, commit=True)
    settle_down(world, process)
    assert tables(process) == at_first
    process.kill()


def held_by_the_line(process: Process) -> list[DeliveredEvent]:
    with process.engine.lock:
        return [
            each
            for each in gc.get_referents(process.engine.partitions[0].shared_lane)
            if isinstance(each, DeliveredEvent)
        ]


def test_a_shared_lane_does_not_keep_a_dead_event_that_it_ran(stage: Any) -> None:
    """A line stays as long as its partition: one for each would keep up to 256 payloads, however large they are."""
    world = World(*stage, partitions=1)
    process = world.join(Shape(1, lines=True))
    world.assign([0], process)
    for _ in range(2):
        world.go_on(process, "poller")
    world.publish(0, 0, "k")
    world.end(0, commit=True)
    world.go_on(process, "poller")
    world.go_on(process, process.actors[-1])
    ((where, handling),) = process.handling()
    assert held_by_the_line(process) == handling.events
    process.finish(where, [Dead("of no use")])
    settle_down(world, process)
    assert held_by_the_line(process) == []
    process.kill()
