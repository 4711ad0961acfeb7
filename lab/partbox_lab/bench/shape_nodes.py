"""Shapes of handlers, whose nodes stand side by side and drain the same backlog in turn."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BEGINNING, BenchDatabase
from partbox_lab.bench.budget import Budget
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import in_turn
from partbox_lab.bench.statements import ReadPosition


class HandlerShape(NamedTuple):
    """A handler with its line, its concurrency, and the event loop of async handlers."""

    budget: Budget
    handler: Any
    concurrency: int
    event_loop: str = "asyncio"


class ShapeDrain(NamedTuple):
    """The result of a drain."""

    rate: float  # events per second
    cost: float  # CPU microseconds of the worker per event


def rates(drained: Sequence[ShapeDrain]) -> list[float]:
    """Return the rates of the drains."""
    return [each.rate for each in drained]


def costs(drained: Sequence[ShapeDrain]) -> list[float]:
    """Return the CPU costs of the drains."""
    return [each.cost for each in drained]


class ShapeNodes:
    """Paused nodes of shapes. Closing the stack ends them and drops their subscriptions."""

    def __init__(self, database: BenchDatabase, stack: ExitStack) -> None:
        self._database = database
        self._stack = stack

    def drain(self, shape: HandlerShape, events: int | None = None) -> Callable[[], ShapeDrain]:
        """Start the node of a shape, and return a function that drains the last `events`, or all without a number."""
        node = self._node(shape)
        start, count = self._last(events)

        def drain() -> ShapeDrain:
            found = node.drain(start)
            return ShapeDrain(found.rate(count), found.cost(count))

        return drain

    def _node(self, shape: HandlerShape) -> BenchNode:
        subscription = shape.budget.name
        outbox = self._database.outbox(shape.handler, subscription, event_loop=shape.event_loop)
        outbox.subscriptions.create(subscription)
        self._stack.callback(outbox.subscriptions.drop, subscription)
        return self._stack.enter_context(
            BenchNode(self._database, outbox, 1, paused=True, subscription=subscription, concurrency=shape.concurrency)
        )

    def _last(self, events: int | None) -> tuple[ReadPosition, int]:
        loaded = self._database.sizes.events
        if events is None or events >= loaded:
            return BEGINNING, loaded
        end = statements.position(self._database.conn, self._database.schema)
        return ReadPosition(end.snapshot, end.last_id - events), events


def drains_in_turn(database: BenchDatabase, *sides: Callable[[], ShapeDrain]) -> tuple[list[ShapeDrain], ...]:
    """Run the sides in turn, announce each round, and return the drains of each side."""
    rounds = database.sizes.pairs

    def begin(number: int) -> None:
        database.check()
        database.say(f"  round {number} of {rounds} ..." if number else "  a round that does not count ...")

    return in_turn(rounds, *sides, begin=begin)
