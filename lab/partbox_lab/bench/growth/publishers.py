"""Hundreds of clients that publish at the same time."""

from collections.abc import Set
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.budget import Budget, Direction
from partbox_lab.bench.crew import SPARE
from partbox_lab.bench.crowd import crowding
from partbox_lab.bench.family import Family, Results
from partbox_lab.bench.ground import Ground
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared

MANY: Final = Budget(
    "publishers", "publishing by 500 clients at full speed vs the bare INSERT by as many", Direction.AT_LEAST, 0.65
)


def _measure(ground: Ground, wanted: Set[str]) -> Results:
    sizes = ground.sizes.growth
    ground.fresh()
    with BenchNode(ground, ground.outbox(ignore), 1):
        free = statements.free_connections(ground.conn, ground.schema) - SPARE
        clients = max(1, min(sizes.publishers, free))
        published, inserted = crowding(ground, updates=False, clients=clients, bare=True, turn=sizes.crowded)
    note = f"; {clients} clients"
    if clients < sizes.publishers:
        note += ": the server has no connections for more"
    yield compared(MANY.name, ("publish", published), ("INSERT", inserted), note)


FAMILY: Final = Family((MANY,), _measure)
