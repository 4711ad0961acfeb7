"""The demo from its first line to its last, and its churn: kills a process now and then, adds one, sends one away."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final, TextIO

from partbox.db.connect import connect, resolve
from partbox.db.inspect import stats
from partbox.db.inspect.stats import Cluster
from partbox.demo.activity_feed import ActivityFeed
from partbox.demo.audit import STEPS, DeliveryAudit, DeliveryMeter, DemoRecorder
from partbox.demo.shop import Shop
from partbox.demo.summary import Summary
from partbox.demo.view import Frame, Screen
from partbox.demo.workspace import workspace
from partbox.errors import PartboxError
from partbox.http.address import LOOPBACK, Address
from partbox.http.server import check_installed
from partbox.outbox import Outbox
from partbox.platform import require_workers
from partbox.supervisor.signals import uninterrupted
from partbox.supervisor.supervisor import Supervisor
from partbox.terminal.interrupts import Interrupts, stderr_to
from partbox.terminal.roster import Roster
from partbox.text.wording import counted

SCHEMA: Final = "partbox_demo"
LOG: Final = "log"  # of the worker processes and their supervisor
THROWN_AWAY: Final = {"fsync": "off"}
LOOK = 0.25  # seconds between two frames, and two queries
TO_START = 60.0
TO_DRAIN = 20.0
FIRST = 5.0  # seconds until the first act of the churn
PAUSE = 4.0  # and between two; every other one is a kill


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """Its arguments: `rate` in events per second, `seconds` 0 = until Ctrl-C, `dsn` None = an embedded database."""

    seconds: float = 0.0
    processes: int = 4
    rate: float = 500.0
    chaos: bool = True
    dsn: str | None = None


def run_demo(plan: DemoPlan, out: TextIO) -> Summary:
    """Perform it, showing it on `out`; afterwards no process, no file and no schema of it is left.

    Raises PartboxError or psycopg.Error if it cannot go on.
    """
    require_workers()
    shown = Screen(out)
    with Interrupts() as interrupts:
        shown.say("setting up the database ...")
        dsn = None if plan.dsn is None else resolve(plan.dsn)
        with workspace(dsn, SCHEMA, THROWN_AWAY) as (dsn, folder), stderr_to(folder / LOG):
            summary = _Demo(plan, dsn, folder, interrupts, shown).run()
            if not summary.ok:
                shown.say(_last_words(folder / LOG))
        return summary


class Churn:
    """Acts only while no partition is on the move, so that each act is seen by itself."""

    def __init__(self, supervisor: Supervisor, processes: int, feed: ActivityFeed, audit: DeliveryAudit) -> None:
        self._supervisor = supervisor
        self._wanted = processes
        self._feed = feed
        self._audit = audit
        self._due = FIRST
        self._acts = cycle((self._kill, self._add, self._kill, self._remove))
        self.kills = self.leaves = 0

    def act(self, cluster: Cluster, elapsed: float) -> None:
        """Do the next act, if it is due."""
        if elapsed >= self._due and self._feed.calm and len(cluster.instances) == self._wanted:
            self._due = elapsed + PAUSE
            next(self._acts)(cluster)

    def _kill(self, cluster: Cluster) -> None:
        victim = random.choice(cluster.instances)
        self._audit.killed(victim.pid)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        self.kills += 1
        self._feed.departs(victim, "killed {}")

    def _add(self, _: Cluster) -> None:
        self._scale(1)
        self._feed.say("one more process is asked for")

    def _remove(self, cluster: Cluster) -> None:
        started = {child.pid: child.started_at for child in self._supervisor.children}
        self._scale(-1)  # the youngest leaves
        self.leaves += 1
        self._feed.departs(max(cluster.instances, key=lambda each: started.get(each.pid, 0.0)), "{} leaves")

    def _scale(self, more: int) -> None:
        self._wanted += more
        self._supervisor.scale(self._wanted)


class _Demo:
    def __init__(self, plan: DemoPlan, dsn: str, folder: Path, interrupts: Interrupts, shown: Screen) -> None:
        self._plan = plan
        self._dsn = dsn
        self._folder = folder
        self._interrupts = interrupts
        self._screen = shown
        self._processes = counted(plan.processes, "worker process")
        self._outbox = Outbox(dsn, schema=SCHEMA)
        deliveries = folder / "deliveries"
        recorder = DemoRecorder(deliveries)
        for step in STEPS:
            self._outbox.register(recorder, step, "Order")
        self._supervisor = self._outbox.supervisor(processes=plan.processes)
        self._shop = Shop(self._outbox, plan.rate)
        self._audit = DeliveryAudit(deliveries)
        self._roster = Roster()
        self._feed = ActivityFeed(self._roster, shown.hear)
        self._churn = Churn(self._supervisor, plan.processes, self._feed, self._audit)
        self._serving = ExitStack()
        self._page: str | None = None
        self._conn = connect(dsn, lease=self._outbox.settings.lease, name="partbox demo")
        self._opened = False
        self._began = time.monotonic()
        self._meter = DeliveryMeter(self._began)

    def run(self) -> Summary:
        try:
            if not self._interrupts.asked.is_set():
                self._start()
                with self._screen.live():
                    if self._gather():
                        self._open()
                        self._churn_until_the_end()
                        self._drain()
        finally:
            self._stop()
        return self._summary()

    def _start(self) -> None:
        self._feed.say(f"starting {self._processes}")
        with uninterrupted():
            self._supervisor.start()
            served = self._serve()
        self._feed.say(served)

    def _serve(self) -> str:
        """Serve the live page, with the letters of the terminal, if that is possible; the news of it."""
        try:
            check_installed()
            from partbox.dashboard import from_roster, standalone

            faces, where = from_roster(self._roster), Address(LOOPBACK, 0)
            page = standalone(self._outbox.settings, lambda: self._dsn, where, None, lambda: faces)
            self._page = self._serving.enter_context(page)
        except PartboxError as error:
            return f"no live page: {error}"
        return f"live page: {self._page}"

    def _gather(self) -> bool:
        """Wait for the worker processes; False if the end comes first."""
        asked = self._interrupts.asked
        processes = self._plan.processes
        ready = self._wait(lambda: len(self._look().instances) == processes and self._feed.calm, TO_START, asked.is_set)
        if not ready and not asked.is_set():
            raise PartboxError(f"the worker processes are not ready within {TO_START:g} s: {self._complaint()}")
        return ready

    def _open(self) -> None:
        """Open the shop; from here on everything counts."""
        self._opened = True
        self._began = time.monotonic()
        self._meter = DeliveryMeter(self._began)
        self._feed.restart(f"{self._processes} for 256 partitions; the shop opens")
        self._shop.open()

    def _churn_until_the_end(self) -> None:
        end = self._began + (self._plan.seconds or float("inf"))
        while (left := end - time.monotonic()) > 0 and not self._interrupts.asked.wait(min(LOOK, left)):
            cluster = self._look()
            if self._plan.chaos:
                self._churn.act(cluster, time.monotonic() - self._began)

    def _drain(self) -> None:
        """Wait until what was published is delivered."""
        self._shop.close()
        self._feed.say("the shop is closed; waiting for the last events")
        self._wait(self._is_delivered, TO_DRAIN, self._interrupts.at_once.is_set)
        self._look()

    def _is_delivered(self) -> bool:
        self._look()
        return self._audit.delivered >= self._shop.published

    def _look(self) -> Cluster:
        """Look at everything, and show it."""
        self._check()
        cluster, now = stats.cluster(self._conn, SCHEMA, "default"), time.monotonic()
        events = self._meter.read(now, self._audit.read(), self._shop.published)
        self._feed.watch(cluster, now)
        self._screen.show(
            Frame(
                elapsed=now - self._began if self._opened else None,
                seconds=self._plan.seconds,
                cluster=cluster,
                roster=self._roster,
                moved=self._feed.moved(now),
                events=events,
                duplicates=self._audit.duplicates,
                out_of_order=self._audit.out_of_order,
                happenings=self._feed.happenings,
                page=self._page,
            )
        )
        return cluster

    def _wait(self, check: Callable[[], bool], seconds: float, given_up: Callable[[], bool]) -> bool:
        return self._interrupts.wait_until(check, seconds, given_up, self._check, LOOK)

    def _check(self) -> None:
        """Raise what ended the shop or the worker processes."""
        if self._shop.failure is not None:
            raise self._shop.failure
        if self._supervisor.failure is not None or not self._supervisor.running:
            raise PartboxError(f"the worker processes ended: {self._complaint()}")

    def _complaint(self) -> str:
        return _last_words(self._folder / LOG, 1) or "they gave no reason"

    def _stop(self) -> None:
        """End the clerks, the page and the worker processes, whatever happened."""
        self._shop.close()
        self._serving.close()
        self._supervisor.stop()
        while self._supervisor.running:
            if self._interrupts.at_once.is_set():
                self._supervisor.kill()
            self._supervisor.join(LOOK)
        self._meter.read(time.monotonic(), self._audit.read(), self._shop.published)
        self._audit.close()
        self._conn.close()

    def _summary(self) -> Summary:
        seconds = time.monotonic() - self._began
        published, lost, made_up = self._audit.compare(self._shop.orders() if self._opened else [])
        half, most = (round(1000 * lag, 2) for lag in lags) if (lags := self._meter.lags()) else (None, None)
        return Summary(
            published=published,
            delivered=self._audit.delivered,
            duplicates=self._audit.duplicates,
            unexplained=self._audit.unexplained,
            out_of_order=self._audit.out_of_order,
            lost=lost,
            rolled_back=self._shop.rolled_back,
            made_up=made_up + self._audit.phantoms,
            kills=self._churn.kills,
            joins=self._feed.joins,
            leaves=self._churn.leaves,
            moves=self._feed.moves,
            seconds=round(seconds, 1),
            lag_p50_ms=half,
            lag_p99_ms=most,
            cut_short=self._interrupts.at_once.is_set(),
        )


def _last_words(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
