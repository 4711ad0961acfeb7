"""Draining a backlog by one process and by two, beside reading the same rows raw and beside other queues."""

from collections.abc import Set
from contextlib import ExitStack
from statistics import median

from partbox.cgroup import usable_processors
from partbox_lab.bench import baselines, pgq, statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import ignore
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import compared, in_rounds

CURSOR = Budget(
    "drain-cursor", "drain, 1 process, vs iterating the same columns by a server-side cursor", Direction.AT_LEAST, 0.5
)
TEXTBOOK = Budget(
    "drain-textbook", "drain, 1 process, vs a textbook SKIP LOCKED outbox (page 100)", Direction.AT_LEAST, 3
)
PGQ = Budget("drain-pgq", "drain, 1 process, vs PgQ by batches", Direction.AT_LEAST, 1.5)
PGQ_TWO = Budget("drain-pgq-two", "drain, 2 processes, vs PgQ in two queues", Direction.AT_LEAST, 1)
TWO = Budget("drain-two", "drain, 2 processes vs 1", Direction.AT_LEAST, 1.5)
WAL = Budget("drain-wal", "WAL of the server per drained event", Direction.AT_MOST, 5, "B")
DEAD = Budget("drain-dead-rows", "dead rows per drained event", Direction.AT_MOST, 0.01)
ONE_PROCESSOR = "this machine has one processor: two processes have nowhere to run side by side"


class _Rounds:
    """Drains and what they are compared with, in turn, in events per second; `wal` (bytes) and `dead` (rows) are those
    of a whole drain."""

    def __init__(self, database: BenchDatabase, node: BenchNode, wanted: Set[str]) -> None:
        self._database = database
        self._node = node
        self._wanted = wanted
        self.one: list[float] = []
        self.two: list[float] = []
        self.cursor: list[float] = []
        self.textbook: list[float] = []
        self.pgq: list[float] = []
        self.pgq_two: list[float] = []
        self.wal: list[float] = []
        self.dead: list[float] = []
        self.claims_wal = self.claims_dead = 0.0

    def run(self) -> None:
        """One round of what is wanted."""
        database, events = self._database, self._database.sizes.events
        if CURSOR.name in self._wanted:
            self.cursor.append(baselines.iterating(database))
        drained = self._node.drain(processes=1, count_dead=DEAD.name in self._wanted and not self.dead)
        self.one.append(drained.rate(events))
        self.wal.append(drained.wal)
        if drained.dead is not None:
            self.dead.append(drained.dead)
        if TEXTBOOK.name in self._wanted:
            self.textbook.append(baselines.textbook(database, database.sizes.textbook))
        self._pgq()
        if {TWO.name, PGQ_TWO.name} & self._wanted:
            self.two.append(self._node.drain(processes=2).rate(events))

    def claim(self) -> None:
        """Measure what it costs to claim every partition and to release it, with nothing to drain."""
        if {WAL.name, DEAD.name} & self._wanted:
            end = statements.position(self._database.conn, self._database.schema)
            claimed = self._node.drain(end, processes=1, count_dead=DEAD.name in self._wanted)
            self.claims_wal, self.claims_dead = claimed.wal, claimed.dead or 0.0

    def _pgq(self) -> None:
        if PGQ.name in self._wanted:
            self.pgq.append(pgq.draining(self._database, self._database.sizes.textbook, pgq.QUEUES[:1]))
        if PGQ_TWO.name in self._wanted:
            self.pgq_two.append(pgq.draining(self._database, self._database.sizes.textbook, pgq.QUEUES))

    def results(self) -> Results:
        """A result for each wanted line, and some more."""
        ours = ("drain", self.one)
        if self.cursor:
            yield compared(CURSOR.name, ours, ("cursor", self.cursor))
        if self.textbook:
            yield compared(TEXTBOOK.name, ours, ("textbook", self.textbook))
        if self.pgq:
            yield compared(PGQ.name, ours, ("PgQ", self.pgq))
        if self.pgq_two:
            yield compared(PGQ_TWO.name, ("two", self.two), ("PgQ", self.pgq_two))
        if self.two:
            yield compared(TWO.name, ("two", self.two), ("one", self.one))
        yield from self._costs()

    def _costs(self) -> Results:
        """WAL and dead rows of an event, without those of the claims."""
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


def _skipped(database: BenchDatabase, wanted: Set[str]) -> Results:
    """The lines that cannot be measured here."""
    if usable_processors() < 2:
        yield from (Unmeasured(each.name, ONE_PROCESSOR) for each in (TWO, PGQ_TWO) if each.name in wanted)
        wanted = wanted - {PGQ_TWO.name}
    if {PGQ.name, PGQ_TWO.name} & wanted and (reason := pgq.lacking(database)) is not None:
        yield from (Unmeasured(each.name, reason) for each in (PGQ, PGQ_TWO) if each.name in wanted)


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    skipped = list(_skipped(database, wanted))
    yield from skipped
    asked = wanted - {each.name for each in skipped}
    if not asked:
        return
    database.backlog(database.sizes.events)
    with ExitStack() as stack:
        if {PGQ.name, PGQ_TWO.name} & asked:
            stack.enter_context(pgq.queues(database))
        node = stack.enter_context(BenchNode(database, database.outbox(ignore), 1, paused=True, concurrency=1))
        found = _Rounds(database, node, asked)
        for _ in range(database.sizes.rounds):
            found.run()
        found.claim()
    yield from (each for each in found.results() if each.name in asked)


GROUP = LineGroup((CURSOR, TEXTBOOK, PGQ, TWO, PGQ_TWO, WAL, DEAD), _measure)
