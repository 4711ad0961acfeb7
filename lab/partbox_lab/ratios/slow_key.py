"""Print how long events wait, from commit to handler, that share a partition with a slow key, and without a slow key.

Run as `python -m partbox_lab.ratios.slow_key`. Every few milliseconds an event of one of several keys is published, all
in one partition. Now and then it is an event of the slow key, whose handler waits. With `--computes`, another thread
computes all the time, so that every other thread gets the GIL late. To compare two versions of partbox, run the program
with each, in turn: a slow key must not make others wait 2 ms longer than before."""

import argparse
import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from statistics import quantiles
from typing import Any

import psycopg

from partbox import Outbox
from partbox.db.schema.migrate import migrate
from partbox.protocol.hashing import partition_of
from partbox_lab.bench.workspace import SCHEMA, bench_workspace

APART = 0.005  # seconds between two events
EVERY = 40  # events, of which the first is of the slow key
SLOW = 0.1  # seconds
KEYS = 20
CONNECTIONS = 20


class Stopwatch:
    """Handlers that note how long each event has waited, in milliseconds, and that wait for events of the slow key."""

    def __init__(self, kind: str, outbox: Outbox) -> None:
        self.waited: list[float] = []
        handler = {"sync": self._handle, "async": self._handle_async, "lists": self._handle_list}[kind]
        (outbox.on_batch("Met") if kind == "lists" else outbox.on("Met"))(handler)

    def _handle(self, event: Any) -> None:
        if self._is_slow(event):
            time.sleep(SLOW)

    async def _handle_async(self, event: Any) -> None:
        if self._is_slow(event):
            await asyncio.sleep(SLOW)

    def _handle_list(self, events: list[Any]) -> None:
        slow = [self._is_slow(each) for each in events]
        if any(slow):
            time.sleep(SLOW)

    def _is_slow(self, event: Any) -> bool:
        if event.payload["slow"]:
            return True
        self.waited.append(1_000 * (time.monotonic() - event.payload["at"]))
        return False

    def line(self, name: str) -> str:
        cuts = quantiles(self.waited, n=100, method="inclusive")
        figures = {"median": cuts[49], "p90": cuts[89], "p99": cuts[98], "most": max(self.waited)}
        said = "".join(f"{each:>9.2f} {what}" for what, each in figures.items())
        return f"{name:<20}{len(self.waited):>7} events{said}"


def keys() -> list[str]:
    """Return aggregate ids of one partition: the slow key, and 20 others."""
    return list(islice((str(number) for number in count() if partition_of(str(number)) == 5), KEYS + 1))


def measure(dsn: str, given: argparse.Namespace, *, slow: bool) -> Stopwatch:
    """Publish and deliver for the given seconds, and return the times."""
    outbox = Outbox(dsn, schema=SCHEMA)
    watch, (slow_key, *others) = Stopwatch(given.kind, outbox), keys()
    with psycopg.connect(dsn, autocommit=True) as conn, outbox.worker(concurrency=given.concurrency) as worker:
        until = time.monotonic() + given.seconds
        for number in count():
            is_slow = slow and number % EVERY == 0
            key = slow_key if is_slow else others[number % KEYS]
            payload = {"slow": is_slow, "at": time.monotonic()}
            with conn.transaction():
                outbox.publish(conn, "Met", payload, aggregate_type="Key", aggregate_id=key)
            time.sleep(APART)
            if time.monotonic() > until:
                break
        worker.wait_until_empty(60.0)
    return watch


@contextmanager
def computing(does: bool) -> Iterator[None]:
    """Run a computing thread during the block, if `does` is true."""
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1_000))

    if does:
        threading.Thread(target=compute, daemon=True).start()
    yield
    ended.set()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="slow_key", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=["sync", "async", "lists"], default="sync")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--computes", action="store_true", help="a thread computes beside the handlers")
    parser.add_argument("--dsn", help=f"another server than an embedded one; its schema {SCHEMA} is made, and dropped")
    given = parser.parse_args()
    with bench_workspace(given.dsn, CONNECTIONS) as place:
        migrate(place.dsn, SCHEMA)
        with computing(given.computes):
            for name, slow in (("no slow key", False), ("beside a slow key", True)):
                print(measure(place.dsn, given, slow=slow).line(name), flush=True)


if __name__ == "__main__":
    main()
