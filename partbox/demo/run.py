"""The demo from start to end, with its churn: processes are killed, added and removed now and then."""

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

from partbox.db.connect import connect, resolve_dsn
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
from partbox.supervisor.signals import hold_signals
from partbox.supervisor.supervisor import Supervisor
from partbox.terminal.interrupts import Interrupts, redirect_stderr
from partbox.terminal.roster import Roster
from partbox.text.wording import format_count

SCHEMA: Final = "partbox_demo"
# The log of the worker processes and of their supervisor.
LOG: Final = "log"
SERVER_OPTIONS: Final = {"fsync": "off"}
FRAME_PAUSE = 0.25  # seconds between two frames, and two queries
START_TIMEOUT = 60.0
DRAIN_TIMEOUT = 20.0
FIRST_ACT = 5.0  # seconds until the first act of the churn
# Seconds between two acts. Every other act is a kill.
ACT_PAUSE = 4.0


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The options of a demo run: duration, number of processes, event rate, kills and database.

    - `seconds`: 0 for a run until Ctrl-C
    - `dsn`: None for an embedded database"""

    seconds: float = 0.0
    processes: int = 4
    rate: float = 500.0
    chaos: bool = True
    dsn: str | None = None


def run_demo(plan: DemoPlan, out: TextIO) -> Summary:
    """Run the demo, show it on `out`, and remove all of its processes, files and schemas afterwards."""
    # PartboxError or psycopg.Error is raised if the demo cannot go on.
    require_workers()
    screen = Screen(out)
    with Interrupts() as interrupts:
        screen.print_text("setting up the database ...")
        dsn = None if plan.dsn is None else resolve_dsn(plan.dsn)
        with workspace(dsn, SCHEMA, SERVER_OPTIONS) as (dsn, folder), redirect_stderr(folder / LOG):
            summary = _Demo(plan, dsn, folder, interrupts, screen).run_demo()
            if not summary.is_ok:
                screen.print_text(_log_tail(folder / LOG))
        return summary


class Churn:
    """A sequence of kills, additions and removals of the demo's worker processes."""

    def __init__(self, supervisor: Supervisor, processes: int, feed: ActivityFeed, audit: DeliveryAudit) -> None:
        self._supervisor = supervisor
        self._wanted = processes
        self._feed = feed
        self._audit = audit
        self._due = FIRST_ACT
        self._acts = cycle((self._kill_process, self._add_process, self._kill_process, self._remove_process))
        self.kills = self.leaves = 0

    def act_if_due(self, cluster: Cluster, elapsed: float) -> None:
        # Nothing happens while a partition is moving, so that each act can be seen by itself.
        if elapsed >= self._due and self._feed.is_settled and len(cluster.instances) == self._wanted:
            self._due = elapsed + ACT_PAUSE
            next(self._acts)(cluster)

    def _kill_process(self, cluster: Cluster) -> None:
        victim = random.choice(cluster.instances)
        self._audit.expect_repeats(victim.pid)
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        self.kills += 1
        self._feed.report_departure(victim, "killed {}")

    def _add_process(self, _: Cluster) -> None:
        self._scale_by(1)
        self._feed.report_news("adding one more process")

    def _remove_process(self, cluster: Cluster) -> None:
        started = {child.pid: child.started_at for child in self._supervisor.children}
        # The youngest process leaves.
        self._scale_by(-1)
        self.leaves += 1
        self._feed.report_departure(max(cluster.instances, key=lambda each: started.get(each.pid, 0.0)), "{} leaves")

    def _scale_by(self, more: int) -> None:
        self._wanted += more
        self._supervisor.scale(self._wanted)


class _Demo:
    def __init__(self, plan: DemoPlan, dsn: str, folder: Path, interrupts: Interrupts, screen: Screen) -> None:
        self._plan = plan
        self._dsn = dsn
        self._folder = folder
        self._interrupts = interrupts
        self._screen = screen
        self._processes = format_count(plan.processes, "worker process")
        self._outbox = Outbox(dsn, schema=SCHEMA)
        deliveries = folder / "deliveries"
        recorder = DemoRecorder(deliveries)
        for step in STEPS:
            self._outbox.register(recorder, step, "Order")
        self._supervisor = self._outbox.supervisor(processes=plan.processes)
        self._shop = Shop(self._outbox, plan.rate)
        self._audit = DeliveryAudit(deliveries)
        self._roster = Roster()
        self._feed = ActivityFeed(self._roster, screen.print_happening)
        self._churn = Churn(self._supervisor, plan.processes, self._feed, self._audit)
        self._serving = ExitStack()
        self._page: str | None = None
        self._conn = connect(dsn, lease=self._outbox.settings.lease, name="partbox demo")
        self._is_shop_open = False
        self._began = time.monotonic()
        self._meter = DeliveryMeter(self._began)

    def run_demo(self) -> Summary:
        try:
            if not self._interrupts.stop_requested.is_set():
                self._start_processes()
                with self._screen.live():
                    if self._await_processes():
                        self._open_shop()
                        self._churn_until_the_end()
                        self._drain_events()
        finally:
            self._stop_processes()
        return self._build_summary()

    def _start_processes(self) -> None:
        self._feed.report_news(f"starting {self._processes}")
        with hold_signals():
            self._supervisor.start()
            served = self._serve_page()
        self._feed.report_news(served)

    def _serve_page(self) -> str:
        # The page has the same letters for processes as the terminal. The result is a news text about the page.
        try:
            check_installed()
            from partbox.dashboard import from_roster, serve_standalone

            faces, where = from_roster(self._roster), Address(LOOPBACK, 0)
            page = serve_standalone(self._outbox.settings, lambda: self._dsn, where, None, lambda: faces)
            self._page = self._serving.enter_context(page)
        except PartboxError as error:
            return f"no live page: {error}"
        return f"live page: {self._page}"

    def _await_processes(self) -> bool:
        # The result is False if the demo ends before the worker processes deliver.
        asked = self._interrupts.stop_requested
        processes = self._plan.processes
        ready = self._wait_until(
            lambda: len(self._refresh_screen().instances) == processes and self._feed.is_settled,
            START_TIMEOUT,
            asked.is_set,
        )
        if not ready and not asked.is_set():
            raise PartboxError(f"the worker processes are not ready within {START_TIMEOUT:g} s: {self._read_failure()}")
        return ready

    def _open_shop(self) -> None:
        # The demo's counts start here.
        self._is_shop_open = True
        self._began = time.monotonic()
        self._meter = DeliveryMeter(self._began)
        self._feed.reset_counts(f"{self._processes} for 256 partitions; the shop opens")
        self._shop.open_shop()

    def _churn_until_the_end(self) -> None:
        end = self._began + (self._plan.seconds or float("inf"))
        while (left := end - time.monotonic()) > 0 and not self._interrupts.stop_requested.wait(min(FRAME_PAUSE, left)):
            cluster = self._refresh_screen()
            if self._plan.chaos:
                self._churn.act_if_due(cluster, time.monotonic() - self._began)

    def _drain_events(self) -> None:
        self._shop.close_shop()
        self._feed.report_news("the shop is closed; waiting for the last events")
        self._wait_until(self._is_delivered, DRAIN_TIMEOUT, self._interrupts.immediate_stop.is_set)
        self._refresh_screen()

    def _is_delivered(self) -> bool:
        self._refresh_screen()
        return self._audit.delivered >= self._shop.published

    def _refresh_screen(self) -> Cluster:
        self._check_workers()
        cluster, now = stats.read_cluster(self._conn, SCHEMA, "default"), time.monotonic()
        events = self._meter.measure_deliveries(now, self._audit.read_deliveries(), self._shop.published)
        self._feed.observe_cluster(cluster, now)
        self._screen.show_frame(
            Frame(
                elapsed=now - self._began if self._is_shop_open else None,
                seconds=self._plan.seconds,
                cluster=cluster,
                roster=self._roster,
                moved_partitions=self._feed.list_moved(now),
                events=events,
                duplicates=self._audit.duplicates,
                out_of_order=self._audit.out_of_order,
                happenings=self._feed.items,
                page=self._page,
            )
        )
        return cluster

    def _wait_until(self, check: Callable[[], bool], seconds: float, given_up: Callable[[], bool]) -> bool:
        return self._interrupts.wait_until(check, seconds, given_up, self._check_workers, FRAME_PAUSE)

    def _check_workers(self) -> None:
        if self._shop.failure is not None:
            raise self._shop.failure
        if self._supervisor.failure is not None or not self._supervisor.running:
            raise PartboxError(f"the worker processes ended: {self._read_failure()}")

    def _read_failure(self) -> str:
        return _log_tail(self._folder / LOG, 1) or "they gave no reason"

    def _stop_processes(self) -> None:
        self._shop.close_shop()
        self._serving.close()
        self._supervisor.stop()
        while self._supervisor.running:
            if self._interrupts.immediate_stop.is_set():
                self._supervisor.kill()
            self._supervisor.join(FRAME_PAUSE)
        self._meter.measure_deliveries(time.monotonic(), self._audit.read_deliveries(), self._shop.published)
        self._audit.close()
        self._conn.close()

    def _build_summary(self) -> Summary:
        seconds = time.monotonic() - self._began
        published, lost, made_up = self._audit.compare_orders(self._shop.list_orders() if self._is_shop_open else [])
        median, most = (round(1000 * lag, 2) for lag in lags) if (lags := self._meter.compute_lags()) else (None, None)
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
            lag_p50_ms=median,
            lag_p99_ms=most,
            cut_short=self._interrupts.immediate_stop.is_set(),
        )


def _log_tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
