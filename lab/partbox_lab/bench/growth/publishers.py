"""Hundreds of clients that publish at the same time."""

from collections.abc import Set
from typing import Final

from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction
from partbox_lab.bench.concurrent_publishers import publish_concurrently
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.idle_instances import SPARE
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared

MANY: Final = Budget(
    "publishers", "publishing by 500 clients at full speed vs the bare INSERT by as many", Direction.AT_LEAST, 0.65
)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    sizes = database.sizes.growth
    database.fresh()
    with BenchNode(database, database.outbox(ignore), 1):
        free = statements.free_connections(database.conn, database.schema) - SPARE
        clients = max(1, min(sizes.publishers, free))
        published, inserted = publish_concurrently(
            database, updates=False, clients=clients, bare=True, turn=sizes.crowded
        )
    note = f"; {clients} clients"
    if clients < sizes.publishers:
        note += ": the server has no connections for more"
    yield compared(MANY.name, ("publish", published), ("INSERT", inserted), note)


GROUP: Final = LineGroup((MANY,), _measure)
