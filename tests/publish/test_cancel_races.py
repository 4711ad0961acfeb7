"""Cancelling against delivery: told to be in time exactly where no handler ran, in whatever order things happen."""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import Connection

from partbox import Event, Outbox

log = logging.getLogger(__name__)

NAMES = ("default", "audit")
WAIT = "select pg_sleep(greatest(0, extract(epoch from %s::timestamptz - clock_timestamp()) + 0.001))"


class Ledger:
    """Whatever handlers ran, by subscription."""

    def __init__(self, dsn: str) -> None:
        self.outbox = Outbox(dsn)
        self.outbox.subscriptions.create("audit")
        self.ran: dict[str, Counter[UUID]] = {name: Counter() for name in NAMES}
        self._lock = threading.Lock()
        for name in NAMES:
            self.outbox.on("*", subscription=name, retry="fixed:0.01")(lambda event, name=name: self.note(name, event))

    def note(self, name: str, event: Any) -> None:
        with self._lock:
            self.ran[name][event.event_id] += 1

    def times(self, event_id: UUID) -> list[int]:
        return [self.ran[name][event_id] for name in NAMES]


# Any order of steps.

APPS = ("first", "second")
STEPS = [
    *(f"{app} {step}" for app in APPS for step in ("cancels", "cancels in vain", "commits", "rolls back")),
    *(f"{name} delivers" for name in NAMES),
    "time comes",
]


@dataclass(eq=False)
class Story:
    """One delayed event, and what two transactions and two workers do about it."""

    ledger: Ledger
    conn: Connection[Any]
    apps: dict[str, Connection[Any]]
    drain: Callable[..., Any]
    delay: float
    open: dict[str, bool] = field(default_factory=dict)  # the apps whose transaction has cancelled: was it in time
    cancelled: bool = False

    def __post_init__(self) -> None:
        with self.conn.transaction():
            event_id = self.ledger.outbox.publish(self.conn, "T", 0, deliver_after=self.delay)
        row = self.conn.execute("select available_at from partbox.record order by id desc limit 1").fetchone()
        assert row is not None
        (self.due,) = row
        assert event_id is not None
        self.event_id = event_id

    def run(self, steps: list[str]) -> None:
        for step in steps:
            self.step(step)
        for app in APPS:
            self.step(f"{app} commits")
        self.step("time comes")
        for name in [*NAMES, *NAMES]:  # what a poll finds in doubt is parked by the first one
            self.step(f"{name} delivers")
            self.conn.execute("select pg_sleep(0.002)")
        assert self.ledger.times(self.event_id) == [0 if self.cancelled else 1] * 2

    def step(self, step: str) -> None:
        who, _, what = step.partition(" ")
        if what == "comes":
            self.conn.execute(WAIT, [self.due])
        elif what == "delivers":
            self.drain(self.ledger.outbox, who)
        elif what in {"commits", "rolls back"}:
            in_time = self.open.pop(who, False)
            if what == "commits":
                self.apps[who].commit()
                self.cancelled = self.cancelled or in_time
            else:
                self.apps[who].rollback()
        elif not self.open.keys() - {who}:  # else it would wait for the other one, which this thread has to end
            self.cancel(who, undone=what.endswith("vain"))

    def cancel(self, who: str, *, undone: bool) -> None:
        app = self.apps[who]
        (before,) = self.conn.execute("select clock_timestamp()").fetchone() or (None,)
        app.execute("select")  # begins the transaction, so that what follows is a savepoint in it
        with app.transaction(force_rollback=undone):
            in_time = self.ledger.outbox.cancel(app, self.event_id)
        (after,) = self.conn.execute("select clock_timestamp()").fetchone() or (None,)
        assert before < self.due if in_time else after >= self.due
        if not undone:
            self.open[who] = self.open.get(who, False) or in_time


@pytest.fixture
def ledger(dsn: str) -> Ledger:
    return Ledger(dsn)


@given(delay=st.sampled_from([0.001, 0.03, 0.06]), steps=st.lists(st.sampled_from(STEPS), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_an_event_either_runs_in_all_subscriptions_or_is_cancelled_in_time_in_any_order_of_steps(
    ledger: Ledger, conn: Connection[Any], drain: Callable[..., Any], delay: float, steps: list[str]
) -> None:
    with ExitStack() as opened:
        apps = {app: opened.enter_context(psycopg.connect(ledger.outbox.dsn)) for app in APPS}
        Story(ledger, conn, apps, drain, delay).run(steps)


# Races with workers that run.


@dataclass
class Races:
    """Delayed events, each cancelled by somebody at about the moment when it is due."""

    ledger: Ledger
    seed: int
    told: dict[UUID, str] = field(default_factory=dict)

    def race(self, number: int) -> None:
        chance = random.Random(self.seed + number)
        delay = chance.choice([0.01, 0.05, 0.1, 0.2])
        with psycopg.connect(self.ledger.outbox.dsn) as conn:
            event = Event("T", number, aggregate_id=str(number % 7), deliver_after=delay)
            began = time.monotonic()
            with conn.transaction():
                self.ledger.outbox.publish(conn, event)
            # A race is about when each comes: it is cancelled around its time, or long before.
            time.sleep(max(0.0, began + delay + chance.uniform(-0.08, 0.01) - time.monotonic()))
            in_time = self.ledger.outbox.cancel(conn, event)
            time.sleep(chance.choice([0.0, 0.0, 0.01, 0.08]))  # the transaction lasts beyond that time, or not
            commits = chance.random() < 0.75
            conn.commit() if commits else conn.rollback()
        self.told[event.event_id] = "late" if not in_time else "cancelled" if commits else "rolled back"

    def check(self) -> Counter[str]:
        for event_id, told in self.told.items():
            expected = [0, 0] if told == "cancelled" else [1, 1]
            assert self.ledger.times(event_id) == expected, (told, event_id)
        return Counter(self.told.values())


@pytest.mark.parametrize("number", [80, pytest.param(1_000, marks=pytest.mark.soak)])
def test_a_cancellation_is_in_time_exactly_where_no_handler_ran(ledger: Ledger, number: int) -> None:
    races = Races(ledger, seed=random.randrange(1_000_000))
    log.info("the seed is %d", races.seed)
    with ExitStack() as running, ThreadPoolExecutor(8) as pool:
        workers = [running.enter_context(ledger.outbox.worker(subscription=name, concurrency=4)) for name in NAMES]
        list(pool.map(races.race, range(number)))
        with psycopg.connect(ledger.outbox.dsn) as conn:  # the last of those that were rolled back are not due yet
            conn.execute(WAIT, conn.execute("select max(available_at) from partbox.record").fetchone())
        assert all(worker.wait_until_empty(120) for worker in workers)
    split = races.check()
    log.info("told: %s", dict(split))
    assert min(split[each] for each in ("late", "cancelled", "rolled back")) > number / 100
    with psycopg.connect(ledger.outbox.dsn) as conn:
        left = conn.execute("select state, count(*) from partbox.parked group by state").fetchall()
        noted = conn.execute("select count(*) from partbox.cancellation").fetchone()
    assert dict(left) == {"discarded": 2 * split["cancelled"]}
    assert noted == (split["cancelled"],)
