"""A world for a test: the database, the clock and the threads of all processes are the model's."""

import asyncio
import logging
from collections.abc import Iterator

import process
import pytest
import statements
from model_clock import ModelClock
from world import World

Stage = tuple[asyncio.AbstractEventLoop, ModelClock]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """What worlds are played on: one event loop, one clock."""
    clock, loop = ModelClock(), asyncio.new_event_loop()
    clock.install(monkeypatch)
    statements.install(monkeypatch)
    process.install(monkeypatch)
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
