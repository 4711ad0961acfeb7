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
    """A shape of handler: its line, how many of it run at once, and what runs the async ones."""

    budget: Budget
    handler: Any
    concurrency: int
    event_loop: str = "asyncio"


class ShapeDrain(NamedTuple):
    """Events per second, and microseconds of CPU of the worker for an event."""

    rate: float
    cost: float


def rates(drained: Sequence[ShapeDrain]) -> list[float]:
    return [each.rate for each in drained]


def costs(drained: Sequence[ShapeDrain]) -> list[float]:
    return [each.cost for each in drained]


class ShapeNodes:
    """Ends its nodes, and drops their subscriptions, when the `with` block of the stack ends."""

    def __init__(self, database: BenchDatabase, stack: ExitStack) -> None:
        self._database = database
        self._stack = stack

    def drain(self, shape: HandlerShape, events: int | None = None) -> Callable[[], ShapeDrain]:
        """Start a node of the shape; the call that drains the last so many events by it, all if None is given."""
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
        """The position before the last so many events of the backlog, and their number."""
        loaded = self._database.sizes.events
        if events is None or events >= loaded:
            return BEGINNING, loaded
        end = statements.position(self._database.conn, self._database.schema)
        return ReadPosition(end.snapshot, end.last_id - events), events


def drains_in_turn(database: BenchDatabase, *sides: Callable[[], ShapeDrain]) -> tuple[list[ShapeDrain], ...]:
    """The drains of all pairs; people are told of each round."""
    rounds = database.sizes.pairs

    def begin(number: int) -> None:
        database.check()
        database.say(f"  round {number} of {rounds} ..." if number else "  a round that does not count ...")

    return in_turn(rounds, *sides, begin=begin)
