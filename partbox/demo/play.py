"""The demo from its first line to its last."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

import psycopg

from partbox.db.connect import connect
from partbox.db.inspect import stats
from partbox.db.inspect.stats import Cluster
from partbox.demo.audit import DeliveryAudit
from partbox.demo.cast import Cast
from partbox.demo.chronicle import Chronicle
from partbox.demo.meter import DeliveryMeter
from partbox.demo.page import LivePage
from partbox.demo.recorder import STEPS, DemoRecorder
from partbox.demo.screen import Screen
from partbox.demo.shop import Shop
from partbox.demo.stage import SCHEMA, Stage, stage
from partbox.demo.summary import Summary
from partbox.demo.view import Frame
from partbox.errors import PartboxError
from partbox.outbox import Outbox
from partbox.rules.wording import counted
from partbox.terminal.interrupts import Interrupts, uninterrupted
from partbox.terminal.roster import Roster

LOOK = 0.25  # seconds between two frames, and two queries
TO_START = 60.0
TO_DRAIN = 20.0
FRESH = 1.5  # seconds that a moved partition is marked


@dataclass(frozen=True, slots=True)
class Play:
    """Its arguments: `rate` in events per second, `seconds` 0 = until Ctrl-C, `dsn` None = an embedded database."""

    seconds: float = 0.0
    processes: int = 4
    rate: float = 500.0
    chaos: bool = True
    dsn: str | None = None


def perform(play: Play, out: TextIO) -> Summary:
    """Perform it, showing it on `out`; afterwards no process, no file and no schema of it is left.

    Raises PartboxError or psycopg.Error if it cannot go on.
    """
    shown = Screen(out)
    with Interrupts() as interrupts:
        shown.say("setting up the database ...")
        with stage(play.dsn) as place:
            summary = _Performance(play, place, interrupts, shown).run()
            if not summary.ok:
                shown.say(place.last_words())
        return summary


class _Performance:
    def __init__(self, play: Play, place: Stage, interrupts: Interrupts, shown: Screen) -> None:
        self._play = play
        self._place = place
        self._interrupts = interrupts
        self._screen = shown
        self._processes = counted(play.processes, "worker process")
        self._outbox = Outbox(place.dsn, schema=SCHEMA)
        recorder = DemoRecorder(place.deliveries)
        for step in STEPS:
            self._outbox.register(recorder, step, "Order")
        self._supervisor = self._outbox.supervisor(processes=play.processes)
        self._shop = Shop(self._outbox, play.rate)
        self._audit = DeliveryAudit(place.deliveries)
        self._roster = Roster()
        self._chronicle = Chronicle(self._roster, shown.hear)
        self._page = LivePage(place.dsn, self._outbox.settings, self._roster)
        self._conn = connect(place.dsn, lease=self._outbox.settings.lease, name="partbox demo")
        self._began = time.monotonic()
        self._meter = DeliveryMeter(self._began)
        self._opened: float | None = None
        self._cast: Cast | None = None

    def run(self) -> Summary:
        try:
            if not self._interrupts.asked.is_set():
                self._start()
                with self._screen.live():
                    if self._gather():
                        self._open()
                        self._on_stage()
                        self._drain()
        finally:
            self._stop()
        return self._summary()

    def _start(self) -> None:
        self._chronicle.say(f"starting {self._processes}")
        with uninterrupted():
            self._supervisor.start()
            self._page.start()
        self._chronicle.say(f"live page: {self._page.address}" if self._page.address else self._page.complaint)

    def _gather(self) -> bool:
        """Wait for the worker processes; False if the end comes first."""
        asked = self._interrupts.asked
        if self._wait(self._are_ready, TO_START, asked.is_set):
            return True
        if asked.is_set():
            return False
        raise PartboxError(f"the worker processes are not ready within {TO_START:g} s: {self._complaint()}")

    def _are_ready(self) -> bool:
        return len(self._frame().instances) == self._play.processes and self._chronicle.calm

    def _open(self) -> None:
        """Open the shop; from here on everything counts."""
        self._began = self._opened = time.monotonic()
        self._meter = DeliveryMeter(self._began)
        self._chronicle.begin(f"{self._processes} for 256 partitions; the shop opens")
        self._shop.open()
        self._cast = Cast(self._supervisor, self._play.processes, self._chronicle, self._audit, self._began)

    def _on_stage(self) -> None:
        end = self._began + self._play.seconds if self._play.seconds else float("inf")
        asked = self._interrupts.asked
        while (left := end - time.monotonic()) > 0 and not asked.wait(min(LOOK, left)):
            cluster = self._frame()
            if self._cast and self._play.chaos:
                self._cast.act(cluster, time.monotonic())

    def _drain(self) -> None:
        """Wait until what was published is delivered."""
        self._shop.close()
        self._chronicle.say("the shop is closed; waiting for the last events")
        self._wait(self._is_delivered, TO_DRAIN, self._interrupts.at_once.is_set)
        self._frame()

    def _is_delivered(self) -> bool:
        self._frame()
        return self._audit.delivered >= self._shop.published

    def _frame(self) -> Cluster:
        """Look at everything, and show it."""
        self._check()
        cluster, now = stats.cluster(self._conn, SCHEMA, "default"), time.monotonic()
        self._meter.add(now, self._audit.read(), self._shop.published)
        self._chronicle.watch(cluster, now)
        self._screen.show(
            Frame(
                elapsed=None if self._opened is None else now - self._opened,
                seconds=self._play.seconds,
                cluster=cluster,
                roster=self._roster,
                moved=self._chronicle.moved(now, FRESH),
                rates=self._meter.rates(now),
                published=self._shop.published,
                published_rate=self._meter.published_rate,
                delivered=self._audit.delivered,
                delivered_rate=self._meter.delivered_rate(now),
                duplicates=self._audit.duplicates,
                out_of_order=self._audit.out_of_order,
                lags=self._meter.recent_lags(),
                happenings=self._chronicle.happenings,
                page=self._page.address,
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
        return self._place.last_words(1) or "they gave no reason"

    def _stop(self) -> None:
        """End the clerks, the page and the worker processes, whatever happened."""
        self._shop.close()
        self._page.stop()
        self._supervisor.stop()
        while self._supervisor.running:
            if self._interrupts.at_once.is_set():
                self._supervisor.kill()
            self._supervisor.join(LOOK)
        self._meter.add(time.monotonic(), self._audit.read(), self._shop.published)
        self._audit.close()
        self._conn.close()

    def _summary(self) -> Summary:
        seconds = time.monotonic() - self._began
        published, lost, made_up = self._audit.compare(self._orders())
        audit, lags = self._audit, self._meter.all_lags()
        return Summary(
            published=published,
            delivered=audit.delivered,
            duplicates=audit.duplicates,
            unexplained=audit.unexplained,
            out_of_order=audit.out_of_order,
            lost=lost,
            rolled_back=self._shop.rolled_back,
            made_up=made_up + audit.phantoms,
            kills=self._cast.kills if self._cast else 0,
            joins=self._chronicle.joins,
            leaves=self._chronicle.leaves,
            moves=self._chronicle.moves,
            seconds=round(seconds, 1),
            lag_p50_ms=round(lags[0] * 1000, 2) if lags else None,
            lag_p99_ms=round(lags[1] * 1000, 2) if lags else None,
            cut_short=self._interrupts.at_once.is_set(),
        )

    def _orders(self) -> list[tuple[int, int]]:
        with suppress(psycopg.errors.UndefinedTable):  # it ended before the shop opened
            return self._shop.orders()
        return []
