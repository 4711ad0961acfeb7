"""CPU of the server for idle processes that no bell wakes, behind PgBouncer."""

import time
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from partbox.embedded import server_user
from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import between, by_process
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.pgbouncer import PROGRAM, PgBouncer

POOLED: Final = Budget(
    "idle-pooled", "CPU of the server for 6 idle processes behind PgBouncer, of a core", Direction.AT_MOST, 3, "%"
)
PROCESSES: Final = 6
POOL: Final = 40  # connections of the pooler, more than the processes use
ROLE: Final = "postgres"
TO_ANSWER: Final = 30.0  # seconds
MISSING: Final = "there is no PgBouncer on this machine: install it, such as by `apt-get install pgbouncer`"
# Settings that workers behind a pooler need, as `docs/operations.md` says. The role has them from the server here.
SETTINGS: Final = {"jit": "off", "row_security": "off"}


@contextmanager
def pooler(database: BenchDatabase) -> Iterator[PgBouncer]:
    """Yield a pooler in front of the database."""
    folder = server_user.make_open_folder(database.folder / "pooler")
    made = PgBouncer(database.dsn, folder, [ROLE], POOL)

    def answers() -> bool:
        if made.has_ended:
            raise PartboxError(f"PgBouncer ended: {made.log}")
        with suppress(psycopg.OperationalError), psycopg.connect(made.dsn(ROLE), prepare_threshold=None):
            return True
        return False

    made.start()
    try:
        database.until(answers, "starting PgBouncer", TO_ANSWER)
        yield made
    finally:
        made.stop()


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if PROGRAM is None:
        yield Unmeasured(POOLED.name, MISSING)
        return
    with database.other_server(**SETTINGS) as other, pooler(other) as bouncer:
        other.fresh()
        dsn = make_conninfo(bouncer.dsn(ROLE), application_name=other.name)
        outbox = Outbox(dsn, schema=other.schema, enabled=True, pooler=True)
        outbox.register(ignore, "*")
        with BenchNode(other, outbox, PROCESSES) as node:
            other.pause(max(other.sizes.calm, other.sizes.growth.settling))
            before, workers, began = _server(other), by_process(node.pids), time.monotonic()
            other.pause(other.sizes.growth.standing)
            passed = time.monotonic() - began
            server, workers_cpu = between(before, _server(other)), between(workers, by_process(node.pids))
    note = f"for {passed:.1f} s; beside it {100 * workers_cpu / passed:.1f} % of the {PROCESSES} processes themselves"
    yield Measured(POOLED.name, 100 * server / passed, note)


def _server(database: BenchDatabase) -> dict[int, float]:
    found = statements.backends(database.conn, database.schema, database.name)
    return by_process(each.pid for each in found)


GROUP: Final = LineGroup((POOLED,), _measure)
