"""No runner is free for long while an event could run that stands in line behind another.

The worker that ships, as time passes in the model: handlers wait, each for its own time. A runner that watches wakes
in time, or as late as where others compute.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import cycle
from math import inf
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_clock import ModelClock
from process import WATCHES, Process, Shape
from run_size import examples
from world import World, number

from partbox.worker.engine.key import Key, key_of
from partbox.worker.runners.dispatcher import IN_TIME

LATE = 3 * IN_TIME  # seconds until who wants the interpreter from a thread that computes gets it
BEYOND = 0.002  # seconds that an event may wait for a runner that is free
KINDS = ["sync", "async", "lists", "async lists", "several"]


class Arrival(NamedTuple):
    """An event that is published so many seconds after the last one, and its handler takes so many."""

    after: float
    partition: int
    key: str
    type: str
    takes: float


ARRIVALS = st.lists(
    st.builds(
        Arrival,
        after=st.sampled_from([0.0, 0.0, 0.0, 0.0004, 0.003, 0.04, 1.2]),
        partition=st.integers(0, 1),
        key=st.sampled_from("abcd"),
        type=st.sampled_from(["Event", "Type 1", "Type 2"]),
        takes=st.sampled_from([0.0, 0.0, 0.003, 0.05, 0.6]),
    ),
    min_size=2,
    max_size=24,
)


class Play:
    """A process and its handlers, moved on from one moment to the next at which something happens."""

    def __init__(self, world: World, shape: Shape, late: Sequence[bool]) -> None:
        self.world, self.clock = world, world.clock
        self.process: Process = world.join(shape)
        self.takes: dict[int, float] = {}
        self._most = shape.concurrency
        self._late = cycle(late)
        self._ends: dict[int, tuple[float, Any, Any]] = {}
        self._wakes: dict[str, float] = {}
        self._since: dict[Key, float] = {}
        self.longest = 0.0
        world.assign([0, 1], self.process)
        for _ in range(2):
            world.clock.now += 0.06
            world.go_on(self.process, "poller")

    def publish(self, arrivals: Sequence[Arrival]) -> None:
        for each in arrivals:
            record = self.world.publish(0, each.partition, f"{each.partition}{each.key}", each.type)
            self.takes[record.number] = each.takes
        self.world.end(0, commit=True)
        now = self.clock.now
        self.world.go_on(self.process, "poller")
        self.clock.now = now  # whatever the poller has slept

    def until(self, end: float) -> None:
        """Whatever happens by then."""
        self._go_on()
        while (moment := self._next()) <= end and moment < inf:
            self.clock.now = max(self.clock.now, moment)
            self._happen()
            self._go_on()
        if end < inf:
            self.clock.now = max(self.clock.now, end)

    def _next(self) -> float:
        return min([*(at for at, _, _ in self._ends.values()), *self._wakes.values()], default=inf)

    def _happen(self) -> None:
        now = self.clock.now
        for each, (at, where, what) in list(self._ends.items()):
            if at <= now:
                del self._ends[each]
                self.process.finish(where, [None for _ in what.events])
        for runner, at in list(self._wakes.items()):
            if at <= now:
                del self._wakes[runner]
                if self.process.subject(runner) is WATCHES:
                    self.process.go_on(runner)

    def _go_on(self) -> None:
        """Every runner does what it can; then it is noted what runs, who watches, and what could run."""
        while free := [each for each in self.process.actors if self._may_run(each)]:
            for each in free:
                self.process.go_on(each)
        now = self.clock.now
        for where, what in self.process.handling():
            takes = max(self.takes[number(each)] for each in what.events)
            self._ends.setdefault(id(what), (now + takes, where, what))
        for runner in self.process.actors:
            if self.process.subject(runner) is WATCHES and runner not in self._wakes:
                self._wakes[runner] = now + (LATE if next(self._late) else self.process.rests)
        self._note_free()

    def _may_run(self, actor: str) -> bool:
        return actor.startswith("runner") and self.process.subject(actor) is None

    def _note_free(self) -> None:
        """Since when each key could run, and there was a runner that is free."""
        handling = [event for _, what in self.process.handling() for event in what.events]
        running = {key_of(each) for each in handling}
        free = len(self.process.handling()) < self._most
        could = {key for key in self._waiting() if key not in running} if free else set[Key]()
        self._since = {key: self._since.get(key, self.clock.now) for key in could}
        self.longest = max([self.longest, *(self.clock.now - since for since in self._since.values())])

    def _waiting(self) -> Iterator[Key]:
        for partition in self.process.engine.partitions.values():
            for lane in (partition.shared_lane, *partition._lanes.values()):
                yield from (key_of(lane.build_event(each)) for each in list(lane.queue))


@pytest.mark.parametrize("interpreter", ["free", "taken"])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_runner_stands_by_while_an_event_waits_behind_another(
    stage: tuple[asyncio.AbstractEventLoop, ModelClock], kind: str, interpreter: str, data: st.DataObject
) -> None:
    world = World(*stage)
    shape = Shape(data.draw(st.integers(2, 6)), kind, window=200, page=400, max_parked=200, lines=True)
    late = [False] if interpreter == "free" else data.draw(st.lists(st.booleans(), min_size=1, max_size=6))
    play = Play(world, shape, late)
    try:
        for arrival in data.draw(ARRIVALS):
            play.until(play.clock.now + arrival.after)
            play.publish([arrival])
        play.until(inf)
    finally:
        play.process.kill()
    assert len(world.ran) == len(play.takes)
    assert play.longest <= (BEYOND if interpreter == "free" else 4 * LATE)
