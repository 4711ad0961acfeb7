"""Print how long events of ordinary customers wait, from commit to handler: alone, and beside four bad ones.

Run as `python -m partbox_lab.ratios.neighbours`. One of thousands of customers fails every event and has a long
backlog, one hangs, one has a backlog under a limit of two calls a second, and the endpoint of one is down. Meanwhile
processes join, leave and are killed. At the end the four come back, and every event must have been delivered, each
customer's in order. The last line is the p99 of the ordinary ones beside the four, divided by their p99 alone."""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

import psycopg

from partbox import Outbox
from partbox.db.schema.migrate import migrate
from partbox_lab.bench.workspace import SCHEMA, bench_workspace
from partbox_lab.sql import query

CONNECTIONS = 100
APART = 0.01  # seconds between two events of ordinary customers
PROBES = 3_000  # events of ordinary customers: enough for each partition to have some
APPLICATION = """
import os
import time
from pathlib import Path

from partbox import Outbox
from partbox.outcomes import RetryAfter

outbox = Outbox()
place = Path(os.environ["TRIAL_PLACE"])
journal = os.open(place / f"journal-{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(event):
    waited = time.time() - event.payload["at"]
    os.write(journal, f"{time.time()} {event.aggregate_id} {event.payload['n']} {waited}\\n".encode())


@outbox.on("Order", name="order", max_attempts=None, timeout=None)
def order(event):
    if event.tenant_id != "good" and (place / event.tenant_id).exists():
        if event.tenant_id == "dead":
            raise ValueError("this customer's events cannot be handled")
        while event.tenant_id == "hangs" and (place / "hangs").exists():
            time.sleep(0.1)
    note(event)


@outbox.on("Mail", name="mail", rate="2/s", limit_by="tenant_id", max_attempts=None)
def mail(event):
    note(event)


@outbox.on("Call", name="call", circuit_by="tenant_id", max_attempts=None)
def call(event):
    if (place / event.tenant_id).exists():
        raise ConnectionRefusedError(f"the endpoint of {event.tenant_id} is down")
    note(event)
"""


@dataclass(frozen=True)
class TrialSizes:
    """The sizes of a trial: the number of customers, the backlogs of the bad ones, and the seconds of each phase."""

    customers: int
    dead: int
    hanging: int
    limited: int
    unreachable: int
    seconds: float


FULL = TrialSizes(10_000, 1_000_000, 1_000, 400_000, 18_000, 60.0)
SMALL = TrialSizes(1_000, 20_000, 100, 2_000, 1_000, 15.0)


class Trial:
    """One run: a database, nodes of real processes, and the events that they have handled."""

    def __init__(self, dsn: str, place: Path, sizes: TrialSizes, seed: int) -> None:
        self.dsn, self.place, self.sizes, self.random = dsn, place, sizes, random.Random(seed)
        self.conn, self.outbox = psycopg.connect(dsn, autocommit=True), Outbox(dsn, schema=SCHEMA)
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.number = 0
        (place / "app.py").write_text(APPLICATION, encoding="utf-8")

    def start_node(self) -> None:
        """Start a node with two worker processes."""
        environment = {**os.environ, "PARTBOX_DSN": self.dsn, "PARTBOX_SCHEMA": SCHEMA, "TRIAL_PLACE": str(self.place)}
        name = f"node-{len(self.nodes)}-{self.random.random():.6f}"
        command = [
            str(Path(sys.executable).parent / "partbox"),
            "worker",
            "app:outbox",
            "--processes",
            "2",
            "--node",
            name,
        ]
        with (self.place / f"{name}.log").open("wb") as log:
            self.nodes.append(
                subprocess.Popen(command, cwd=self.place, env=environment, stdout=log, stderr=subprocess.STDOUT)
            )

    def stop_node(self) -> None:
        """Stop the newest node, and wait for its end."""
        node = self.nodes.pop()
        node.terminate()
        node.wait(60)

    def kill_process(self) -> None:
        """Kill one worker process."""
        rows = self.conn.execute(query("neighbours_pids", SCHEMA)).fetchall()
        if rows:
            os.kill(self.random.choice([pid for (pid,) in rows]), signal.SIGKILL)

    def wait_for_owners(self) -> None:
        """Wait until every partition has an owner."""
        self.wait_until(lambda: self.ask("neighbours_unowned") == 0, 60)

    def ask(self, name: str, *values: Any) -> int:
        row = self.conn.execute(query(name, SCHEMA), values).fetchone()
        assert row is not None
        (value,) = row
        return int(value)

    @staticmethod
    def wait_until(check: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not check():
            if time.monotonic() > until:
                raise SystemExit(f"this has not come about within {seconds:g} s: {check}")
            time.sleep(0.2)

    def plant(self, event_type: str, tenant: str, count: int, *, keys: int) -> None:
        """Publish a backlog of one bad customer, with this number of events and of aggregates."""
        values = {"type": event_type, "tenant": tenant, "at": time.time(), "keys": keys, "events": count}
        self.conn.execute(query("neighbours_plant", SCHEMA), values)

    def wait_until_read(self) -> float:
        """Wait until the workers have read all that is published, and return the seconds that this took."""
        # An event of an ordinary customer that has been handled shows that its partition was read so far.
        began, first = time.monotonic(), self.number
        for _ in range(PROBES):
            self.publish()
        mine = set(range(first + 1, self.number + 1))
        self.wait_until(lambda: {n for c, n, _ in self.journal() if c.startswith("customer")} >= mine, 600)
        return time.monotonic() - began

    def publish(self) -> None:
        """Publish an event of an ordinary customer."""
        self.number += 1
        customer = f"customer-{self.random.randrange(self.sizes.customers)}"
        payload = {"n": self.number, "at": time.time()}
        with self.conn.transaction():
            self.outbox.publish(
                self.conn, "Order", payload, aggregate_type="Customer", aggregate_id=customer, tenant_id="good"
            )

    def run_phase(self) -> list[float]:
        """Publish events of ordinary customers, and return the milliseconds that each waited."""
        began, first = time.monotonic(), self.number
        steps = [self.start_node, self.kill_process, self.kill_process, self.stop_node]
        while (now := time.monotonic() - began) < self.sizes.seconds:
            if steps and now > (5 - len(steps)) / 5 * self.sizes.seconds:
                steps.pop(0)()
            self.publish()
            time.sleep(APART)
        mine = range(first + 1, self.number + 1)
        self.wait_until(lambda: {n for c, n, _ in self.journal() if c.startswith("customer")} >= set(mine), 120)
        return [
            1_000 * waited for customer, n, waited in self.journal() if customer.startswith("customer") and n in mine
        ]

    def journal(self) -> list[tuple[str, int, float]]:
        """Return the handled events in the order of time: aggregate, number, seconds waited."""
        lines = [
            line for file in self.place.glob("journal-*") for line in file.read_text(encoding="utf-8").splitlines()
        ]
        return [
            (key, int(n), float(waited))
            for _, key, n, waited in sorted(map(str.split, lines), key=lambda each: float(each[0]))
        ]

    def check_journal(self, expected: int) -> None:
        """Exit unless each event was handled, the events of an aggregate in order at their first time."""
        last, seen = dict[str, int](), set[tuple[str, int]]()
        for key, number, _ in self.journal():
            if (key, number) not in seen:
                seen.add((key, number))
                if number < last.get(key, 0):
                    raise SystemExit(f"{number} of {key} came after {last[key]}")
                last[key] = number
        if len(seen) != expected:
            raise SystemExit(f"{expected - len(seen)} of {expected} events are lost")


@contextmanager
def trial(given: argparse.Namespace, sizes: TrialSizes, place: Path, dsn: str) -> Iterator[Trial]:
    made = Trial(dsn, place, sizes, given.seed)
    try:
        yield made
    finally:
        for node in made.nodes:
            node.kill()
            node.wait()
        made.conn.close()


def run(here: Trial) -> None:
    sizes, place = here.sizes, here.place
    here.start_node()
    here.wait_for_owners()
    alone = here.run_phase()
    for tenant in ("dead", "hangs", "away"):
        (place / tenant).touch()
    here.plant("Order", "dead", sizes.dead, keys=1)
    here.plant("Order", "hangs", sizes.hanging, keys=1)
    here.plant("Mail", "limited", sizes.limited, keys=sizes.limited)
    here.plant("Call", "away", sizes.unreachable, keys=sizes.unreachable)
    print(f"the backlogs of the four were read within {here.wait_until_read():.0f} s", flush=True)
    beside = here.run_phase()
    rows = here.ask("neighbours_rows", "dead")
    print(f"rows of the dead customer: {rows}; all parked rows: {here.ask('neighbours_parked')}", flush=True)
    print(f"memory of the processes: {', '.join(f'{each:.0f} MB' for each in memories(here))}", flush=True)
    for name, waited in (("alone", alone), ("beside the four", beside)):
        cuts = quantiles(waited, n=100, method="inclusive")
        print(
            f"{name:<16}{len(waited):>7} events{cuts[49]:>9.2f} median{cuts[98]:>9.2f} p99{max(waited):>9.2f} most, ms",
            flush=True,
        )
    for tenant in ("dead", "hangs", "away"):
        (place / tenant).unlink()
    partbox = str(Path(sys.executable).parent / "partbox")
    subprocess.run(
        [partbox, "limit", "set", "mail", "--rate", "none", "--dsn", here.dsn, "--schema", SCHEMA], check=True
    )
    total = here.number + sizes.dead + sizes.hanging + sizes.limited + sizes.unreachable
    began = time.monotonic()
    here.wait_until(lambda: here.ask("neighbours_left") == 0, 1_800)
    print(f"the four have caught up in {time.monotonic() - began:.0f} s", flush=True)
    here.check_journal(total)
    ratio = quantiles(beside, n=100, method="inclusive")[98] / quantiles(alone, n=100, method="inclusive")[98]
    print(f"none lost, none out of order; p99 beside over alone: {ratio:.2f}")


def memories(here: Trial) -> list[float]:
    """Return the resident megabytes of each worker process."""
    pids = [pid for (pid,) in here.conn.execute(query("neighbours_pids", SCHEMA))]
    status = [Path(f"/proc/{pid}/status").read_text(encoding="utf-8") for pid in pids if Path(f"/proc/{pid}").exists()]
    return [int(text.split("VmRSS:")[1].split()[0]) / 1_024 for text in status]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="neighbours", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="a few thousand events, within a minute")
    parser.add_argument("--dsn", help=f"another server than an embedded one; its schema {SCHEMA} is made, and dropped")
    given = parser.parse_args()
    with bench_workspace(given.dsn, CONNECTIONS) as place:
        migrate(place.dsn, SCHEMA)
        folder = Path(place.folder) / f"neighbours-{given.seed}"
        folder.mkdir()
        with trial(given, SMALL if given.small else FULL, folder, place.dsn) as here:
            run(here)


if __name__ == "__main__":
    main()
