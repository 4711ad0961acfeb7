"""A world for a test: the database, the clock and the threads of all processes are the model's."""

import asyncio
import logging
from collections.abc import Iterator
from zlib import crc32

import process
import pytest
import statements
from model_clock import ModelClock
from world import World

from partbox.worker.engine.partition import Lane, Partition

Stage = tuple[asyncio.AbstractEventLoop, ModelClock]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """What worlds are played on: one event loop, one clock."""
    clock, loop = ModelClock(), asyncio.new_event_loop()
    clock.install(monkeypatch)
    monkeypatch.setattr(loop, "time", lambda: clock.now)  # or what sleeps in it would sleep for ever: nobody waits
    statements.install(monkeypatch)
    process.install(monkeypatch)
    # So sets of them have one order whenever a world is played again, and what was found is found once more.
    monkeypatch.setattr(Partition, "__hash__", lambda partition: partition.number)
    monkeypatch.setattr(Lane, "__hash__", lambda lane: crc32(repr(lane.key).encode()))
    logging.disable(logging.CRITICAL)
    yield loop, clock
    logging.disable(logging.NOTSET)
    loop.close()


@pytest.fixture
def world(stage: Stage) -> Iterator[World]:
    """Two partitions, and nobody there yet."""
    world = World(*stage)
    yield world
    for each in world.processes:
        each.kill()
