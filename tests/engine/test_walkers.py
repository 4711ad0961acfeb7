"""Walkers of async handlers, whose loop has the clock of the model."""

from model_handlers import Shape
from process import Process
from rest import settle_down
from world import World


def runs(world: World, process: Process) -> bool:
    world.go_on(process, "poller")
    return bool(process.handling())


def test_an_async_runner_that_was_not_trusted_asks_for_lanes_again_after_a_while(world: World) -> None:
    """Its handler ends before the poller has heard of the new identity: nobody else calls the walker then."""
    process = world.join(Shape(concurrency=1, kind="async"))
    world.assign([0, 1], process)
    for _ in range(2):
        world.publish(0, 0, "0a")
    world.end(0, commit=True)
    assert any(runs(world, process) for _ in range(10))
    world.expire(process)
    world.rename(process)
    world.assign([0, 1], process)
    ((where, _),) = process.handling()
    process.finish(where, [None])
    settle_down(world, process)
    assert len(world.ran) == 2
