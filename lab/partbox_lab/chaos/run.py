"""A chaos run from its start to its report.

One thread carries out the scheduled faults, ends them, and tends the nodes. When the time is over, publishers stop, all
faults are undone, and the run waits until every event is delivered. Then the history is judged.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TextIO

from partbox.errors import PartboxError
from partbox.observe.logs.log_event import FULL_DISK
from partbox.outbox import Outbox
from partbox.terminal.interrupts import Interrupts
from partbox_lab.chaos import statements
from partbox_lab.chaos.capabilities import Capabilities
from partbox_lab.chaos.explained_duplicates import UNEXPLAINED, explain
from partbox_lab.chaos.fault_injector import FaultInjector
from partbox_lab.chaos.faults import FAULTS
from partbox_lab.chaos.fleet import Fleet
from partbox_lab.chaos.full_disk import FullDisk, OwnDisk
from partbox_lab.chaos.journal import HandlerCall, Journal
from partbox_lab.chaos.ledger import Ledger
from partbox_lab.chaos.oracle import LoggedEvent
from partbox_lab.chaos.publishers import ROLE as PUBLISHER
from partbox_lab.chaos.publishers import Leaping, publishers, resolve, stop
from partbox_lab.chaos.report import ChaosReport, examples, violations
from partbox_lab.chaos.schedule import schedule
from partbox_lab.chaos.segment_churn import KILLS, SegmentChurn
from partbox_lab.chaos.watcher import Watcher, forgotten, read, regresses
from partbox_lab.chaos.workspace import chaos_workspace
from partbox_lab.workspace import Workspace

LOOK = 0.05  # seconds
CONCURRENCY: Final = 4  # of each worker process
ACCOUNTS: Final = 120  # aggregates of the ordinary publishers
TO_START = 90.0  # seconds until the nodes own all partitions
TO_DRAIN = 240.0  # seconds until everything is delivered
TO_LEAVE = 45.0  # seconds until a node has ended
BACKLOG: Final = 3_000  # unhandled events at which publishers pause: a run tests completeness, not speed


@dataclass(frozen=True, slots=True)
class ChaosPlan:
    """The options of one chaos run."""

    seconds: float
    seed: int
    nodes: int
    processes: int
    faults: tuple[str, ...]
    dsn: str | None  # None: an embedded server
    schema: str
    keep: bool = False  # leave the schema and the history behind


@dataclass(frozen=True, slots=True)
class ChaosAftermath:
    """The database and the history of a run, for a test that looks at them before the workspace is removed."""

    dsn: str
    published: list[LoggedEvent]
    calls: list[HandlerCall]


Inspect = Callable[[ChaosAftermath], None]


def perform(plan: ChaosPlan, out: TextIO, inspect: Inspect | None = None) -> ChaosReport:
    """Run one chaos plan, write progress to `out`, and return the report. `inspect` is called before the database is
    removed.

    The first Ctrl-C ends publishing and faults early, and the run is still judged. A second one also ends the wait for
    deliveries. Nothing is left of the run, unless a promise was broken or `keep` is set. Raise `PartboxError` or
    `psycopg.Error` if the run cannot go on.
    """
    disk = OwnDisk(any(FAULTS[name].needs == "disk" for name in plan.faults))
    with Interrupts() as interrupts, chaos_workspace(plan.dsn, plan.schema, plan.keep, disk) as where:
        run = _Run(plan, where, disk, interrupts, out)
        report = run.run()
        if inspect is not None:
            inspect(run.aftermath)
        return report


class _Run:
    def __init__(self, plan: ChaosPlan, where: Workspace, disk: OwnDisk, interrupts: Interrupts, out: TextIO) -> None:
        self._plan = plan
        self._place = where
        self._interrupts = interrupts
        self._out = out
        self._began = time.monotonic()
        self._lasted = self._told = 0.0
        self._capabilities = Capabilities(where, plan.faults, disk)
        self._journal = Journal(where.folder / "journal")
        self._ledger = Ledger(Outbox(where.dsn, schema=plan.schema), ACCOUNTS)
        self._fleet = Fleet(where, self._capabilities.route, plan.processes, CONCURRENCY)
        self._watcher = Watcher(where, self._fleet.leaving)
        self._publishers = publishers(where, self._ledger, plan.seed, self._capabilities.two_phase)
        self._leaping = [each for each in self._publishers if isinstance(each, Leaping)]
        self._churn = SegmentChurn(where)
        full = FullDisk(where, disk.disk, self._publish) if disk.disk is not None else None
        self._injector = FaultInjector(
            where, self._fleet, self._watcher, self._say, self._publishers, full, self._churn
        )

    def run(self) -> ChaosReport:
        for name, reason in self._capabilities.skipped.items():
            self._say(f"no {name}: {reason}")
        try:
            self._start()
            self._disturb()
            quiet = time.monotonic()
            drained = self._drain()
            report = self._judge(drained, time.monotonic() - quiet, self._stop())
        finally:
            self._end()
        return report

    def _start(self) -> None:
        """Start the nodes, and the publishers once nodes own all partitions. The run's time counts from then on."""
        with self._place.connect("chaos") as conn:
            self._ledger.open(conn)
        if set(KILLS) & set(self._capabilities.faults):
            self._churn.begin()
        for _ in range(self._plan.nodes):
            self._fleet.join()
        self._watcher.start()
        self._wait(lambda: self._watcher.settled, TO_START, self._interrupts.stop_requested.is_set)
        if not self._watcher.settled and not self._interrupts.stop_requested.is_set():
            raise PartboxError(f"the nodes do not start within {TO_START:g} s: {self._fleet.last_words()}")
        self._began = time.monotonic()
        self._say(f"{self._plan.nodes} nodes own all partitions; seed {self._plan.seed}")
        for publisher in self._publishers:
            publisher.start()

    def _disturb(self) -> None:
        """Carry out the schedule until the time is over, undo all faults, and stop the publishers except `Leaping`."""
        steps = list(schedule(self._plan.seed, self._plan.seconds, self._capabilities.faults))
        while self._elapsed < self._plan.seconds and not self._interrupts.stop_requested.is_set():
            while steps and steps[0].at <= self._elapsed:
                self._injector.do(steps.pop(0))
            self._injector.settle()
            self._fleet.tend()
            self._look()
            self._interrupts.stop_requested.wait(LOOK)
        self._lasted = self._elapsed
        self._say("publishers stop; everything is mended")
        self._injector.finish()
        stop([each for each in self._publishers if each not in self._leaping], self._interrupts.immediate_stop.wait)
        if self._capabilities.two_phase:
            with self._place.connect("chaos") as conn:
                resolve(conn, self._plan.schema, self._place.named("prepared "))

    def _drain(self) -> bool:
        """Wait until every event is done, and return True if that happened in time. The first wait runs beside the
        transactions of `Leaping` publishers, which must hold up no other event."""
        with self._place.connect("chaos") as conn:

            def left() -> int:
                return statements.left(conn, self._plan.schema)

            def drained() -> bool:
                self._fleet.tend()
                return left() == 0

            beside = self._wait(drained, TO_DRAIN, self._interrupts.immediate_stop.is_set, 0.5)
            self._let_go()
            return beside and self._wait(drained, TO_DRAIN, self._interrupts.immediate_stop.is_set, 0.5)

    def _publish(self) -> None:
        """Publish and commit one event, to show that the database accepts writes again."""
        with self._place.connect(PUBLISHER) as conn:
            with conn.transaction():
                events = self._ledger.published(conn, [(None, None)])
            self._ledger.committed(events)

    def _let_go(self) -> None:
        for each in self._leaping:
            each.let_go.set()
        stop(self._leaping, self._interrupts.immediate_stop.wait)

    def _stop(self) -> list[str]:
        self._say("the nodes leave")
        return self._fleet.stop(TO_LEAVE)

    def _judge(self, drained: bool, drain_seconds: float, stuck: list[str]) -> ChaosReport:
        self._watcher.stopping.set()
        self._watcher.join()
        for name in stuck:
            self._say(f"{name} did not leave and was killed")
        with self._place.connect("chaos") as conn:
            truth, cursors = self._ledger.truth(conn), read(conn, self._plan.schema)
        deliveries = self._journal.deliveries()
        self.aftermath = ChaosAftermath(self._place.dsn, truth, deliveries)
        stale_saves = [
            *self._watcher.stale_saves,
            *regresses(self._watcher.cursors, cursors, crashed=False),
            *forgotten(deliveries, cursors),
        ]
        judgement = explain(truth, deliveries, [*self._injector.disturbances, *self._watcher.losses], CONCURRENCY)
        found = violations(judgement, stale_saves, self._churn.left_over() if drained else [])
        self._place.keep |= any(found.values()) or not drained
        return ChaosReport(
            seed=self._plan.seed,
            seconds=round(self._lasted, 1),
            nodes=self._plan.nodes,
            processes=self._plan.processes,
            published=len(truth),
            rolled_back=self._ledger.rolled_back,
            deliveries=len(deliveries),
            drained=drained,
            drain_seconds=round(drain_seconds, 1),
            interrupted_by_user=self._interrupts.stop_requested.is_set(),
            repeats={cause: count for cause, count in judgement.repeats.items() if cause != UNEXPLAINED},
            in_flight=judgement.in_flight,
            violations={name: len(those) for name, those in found.items()},
            examples=examples(found),
            kept=str(self._place.kept_folder) if self._place.keep else None,
            **self._happened(),
        )

    def _happened(self) -> dict[str, Any]:
        """Return the report's counts of faults and their traces. A requested kill that never struck counts as
        missed."""
        unmet = Counter({name: self._injector.done[name] for name in KILLS}) - self._churn.killed
        return {
            "interrupted": sum(each.interrupted for each in self._publishers),
            "refused": sum(each.refused for each in self._publishers),
            "restarted": self._fleet.restarted,
            "segments": dict(self._churn.done),
            "remedies": self._fleet.logged(FULL_DISK),
            "faults": dict(self._injector.done - unmet),
            "missed": dict(self._injector.missed + unmet),
            "skipped": self._capabilities.skipped,
        }

    def _end(self) -> None:
        self._churn.stopping.set()
        for publisher in self._publishers:
            publisher.stopping.set()
        for leaping in self._leaping:
            leaping.let_go.set()
        self._watcher.stopping.set()
        self._fleet.kill()
        self._capabilities.close()
        for thread in (*self._publishers, self._watcher, self._churn):
            if thread.ident is not None:
                thread.join(5)

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _wait(
        self, check: Callable[[], bool], seconds: float, given_up: Callable[[], bool], pause: float = LOOK
    ) -> bool:
        return self._interrupts.wait_until(check, seconds, given_up, self._look, pause)

    def _look(self) -> None:
        """Raise the error of a thread that failed. Once a second, read the journal, pause or resume the publishers by
        the backlog, and print the progress on a terminal."""
        for error in (self._watcher.error, self._churn.error, *(each.error for each in self._publishers)):
            if error is not None:
                raise error
        if time.monotonic() < self._told + 1:
            return
        self._told = time.monotonic()
        deliveries = self._journal.read()
        behind = self._ledger.count - self._journal.handled
        for each in self._publishers:
            each.hold(behind > BACKLOG)
        if self._out.isatty():
            self._say(
                f"{self._ledger.count:,} published, {behind:,} of them not handled yet, {deliveries:,} deliveries"
            )

    def _say(self, text: str) -> None:
        self._out.write(f"{self._elapsed:6.1f} s  {text}\n")
        self._out.flush()
