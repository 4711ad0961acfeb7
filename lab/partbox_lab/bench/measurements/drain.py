"""Drains of a backlog by one process and by two, compared with another outbox, and their cost in the server."""

from collections.abc import Set
from statistics import median

from partbox.cgroup import usable_processors
from partbox_lab.bench import baselines, statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import ONE_PROCESSOR, BenchNode
from partbox_lab.bench.rounds import compared, in_rounds

TEXTBOOK = Budget(
    "drain-textbook", "drain, 1 process, vs a textbook SKIP LOCKED outbox (page 100)", Direction.AT_LEAST, 2.5
)
TWO = Budget("drain-two", "drain, 2 processes vs 1", Direction.AT_LEAST, 1.5)
WAL = Budget("drain-wal", "WAL of the server per drained event", Direction.AT_MOST, 5, "B")
DEAD = Budget("drain-dead-rows", "dead rows per drained event", Direction.AT_MOST, 0.01)


class _Rounds:
    """Drains and comparisons in turn, in events per second. `wal` (bytes) and `dead` (rows) count whole drains."""

    def __init__(self, database: BenchDatabase, node: BenchNode, wanted: Set[str]) -> None:
        self._database = database
        self._node = node
        self._wanted = wanted
        self.one: list[float] = []
        self.two: list[float] = []
        self.textbook: list[float] = []
        self.wal: list[float] = []
        self.dead: list[float] = []
        self.claims_wal = self.claims_dead = 0.0

    def run(self) -> None:
        """Run one round of the wanted lines."""
        database, events = self._database, self._database.sizes.events
        drained = self._node.drain(processes=1, count_dead=DEAD.name in self._wanted and not self.dead)
        self.one.append(drained.rate(events))
        self.wal.append(drained.wal)
        if drained.dead is not None:
            self.dead.append(drained.dead)
        if TEXTBOOK.name in self._wanted:
            self.textbook.append(baselines.textbook(database, database.sizes.textbook))
        if TWO.name in self._wanted:
            self.two.append(self._node.drain(processes=2).rate(events))

    def claim(self) -> None:
        """Measure the cost of claiming and releasing all partitions without events."""
        if {WAL.name, DEAD.name} & self._wanted:
            end = statements.position(self._database.conn, self._database.schema)
            claimed = self._node.drain(end, processes=1, count_dead=DEAD.name in self._wanted)
            self.claims_wal, self.claims_dead = claimed.wal, claimed.dead or 0.0

    def results(self) -> Results:
        """Yield a result for each wanted line, and possibly more."""
        if self.textbook:
            yield compared(TEXTBOOK.name, ("drain", self.one), ("textbook", self.textbook))
        if self.two:
            yield compared(TWO.name, ("two", self.two), ("one", self.one))
        yield from self._costs()

    def _costs(self) -> Results:
        """Yield WAL and dead rows per event, less the share of the claims."""
        events, said = self._database.sizes.events, f"{self._database.sizes.events:,} events"
        wal = (median(self.wal) - self.claims_wal) / events
        note = f"{said}{in_rounds(len(self.wal))}; beside {self.claims_wal:,.0f} B for claiming 256 partitions"
        yield Measured(WAL.name, max(0.0, wal), note)
        if self.dead:
            dead = max(0.0, self.dead[0] - self.claims_dead) / events
            note = (
                f"{said}; beside {self.claims_dead:,.0f} of claiming and releasing 256 partitions; no vacuum meanwhile"
            )
            yield Measured(DEAD.name, dead, note)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    if TWO.name in wanted and usable_processors() < 2:
        yield Unmeasured(TWO.name, ONE_PROCESSOR)
        wanted = wanted - {TWO.name}
    if not wanted:
        return
    database.backlog(database.sizes.events)
    with BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1) as node:
        found = _Rounds(database, node, wanted)
        for _ in range(database.sizes.rounds):
            found.run()
        found.claim()
    yield from (each for each in found.results() if each.name in wanted)


GROUP = LineGroup((TEXTBOOK, TWO, WAL, DEAD), _measure)
