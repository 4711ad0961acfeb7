"""A run of the bench, from the first line to the report."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import psycopg

from partbox.errors import PartboxError
from partbox.terminal.interrupts import Interrupts, redirect_stderr
from partbox.text.wording import shorten_text
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import LineResult, Measured, Unmeasured, judged
from partbox_lab.bench.cpu import StolenTime
from partbox_lab.bench.group import LineGroup, LineSet
from partbox_lab.bench.machine import BenchServer, Machine
from partbox_lab.bench.measurements import LINES
from partbox_lab.bench.progress import BenchProgress
from partbox_lab.bench.report import BenchReport
from partbox_lab.bench.sizes import FULL, Sizes
from partbox_lab.bench.workspace import bench_workspace

INTERRUPTED = "interrupted"
LONGEST = 300  # characters of a reason


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """The options of a run. Without `dsn`, the bench starts an embedded database."""

    dsn: str | None = None
    wanted: frozenset[str] = LINES.names
    sizes: Sizes = FULL
    quick: bool = False
    lines: LineSet = LINES


def perform(plan: BenchPlan, out: TextIO) -> BenchReport:
    """Measure and report, with progress on `out`. Afterwards no process, file or schema of the run is left. Stderr goes
    to a file meanwhile, so `out` must be another stream, such as a copy of stderr. After Ctrl-C the remaining lines are
    skipped. Raise PartboxError or psycopg.Error if the run cannot begin or the database is lost."""
    progress = BenchProgress(out, len(plan.wanted))
    with Interrupts() as interrupts:
        progress.say("setting up the database ...")
        with bench_workspace(plan.dsn, plan.lines.connections) as place:
            log = place.folder / "log"
            with redirect_stderr(log):
                database = BenchDatabase(place, plan.sizes, interrupts, lambda: _last_words(log), progress.say)
                with database.conn:
                    return _Measurement(plan, database, progress).report()


class _Measurement:
    def __init__(self, plan: BenchPlan, database: BenchDatabase, progress: BenchProgress) -> None:
        self._plan = plan
        self._database = database
        self._progress = progress
        self._machine = Machine.now()
        self._server = BenchServer.of(database.conn, database.schema, embedded=database.embedded)
        self._began, self._stolen = time.monotonic(), StolenTime()
        self._found: dict[str, Measured | Unmeasured] = {}

    def report(self) -> BenchReport:
        interrupted = False
        try:
            for group in self._plan.lines.groups:
                self._measure(group)
        except KeyboardInterrupt:
            interrupted = True
        return BenchReport(
            machine=self._machine,
            server=self._server,
            quick=self._plan.quick,
            seconds=time.monotonic() - self._began,
            stolen=self._stolen.share(),
            interrupted=interrupted,
            results=list(self._results()),
        )

    def _measure(self, group: LineGroup) -> None:
        """Measure the wanted lines of a group. An error fails the lines that are not measured yet."""
        wanted = {each.name for each in group.budgets} & self._plan.wanted
        if not wanted:
            return
        self._database.check()
        self._progress.begin(sorted(wanted, key=[each.name for each in group.budgets].index))
        try:
            for found in group.measure(self._database, wanted):
                self._note(found)
        except (PartboxError, psycopg.Error) as error:
            # Without its connection, no other group can be measured either.
            if self._database.conn.broken:
                raise
            reason = shorten_text(str(error), LONGEST)
            for name in wanted - self._found.keys():
                self._note(Unmeasured(name, reason, failed=True))

    def _note(self, found: Measured | Unmeasured) -> None:
        self._found[found.name] = found
        (result,) = (judged(each, found) for each in self._plan.lines.budgets if each.name == found.name)
        self._progress.tell(result)

    def _results(self) -> Iterator[LineResult]:
        for budget in self._plan.lines.budgets:
            if budget.name in self._plan.wanted:
                yield judged(budget, self._found.get(budget.name, Unmeasured(budget.name, INTERRUPTED)))


def _last_words(log: Path) -> str:
    """Return the last line that a worker process has logged."""
    lines = log.read_text(errors="replace").splitlines()
    return lines[-1] if lines else ""
