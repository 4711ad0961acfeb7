"""Measure the cost of a test with the kit beside its handler: `python -m partbox_lab.bench.kit [TESTS] [DSN]`.

Each test gets a fresh database and a kit, publishes an event, drains, and returns the database, as a pytest test with
`partbox_kit` does. The handler's time is subtracted. The bound holds for a machine without other load."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from statistics import median, quantiles
from typing import TypeVar

from partbox.events import DeliveredEvent
from partbox.outbox import Outbox
from partbox.testing.databases import Shelf
from partbox.testing.kit import Kit
from partbox.testing.servers import server_of
from partbox.testing.sessions import Sessions

TESTS = 100
WARM = 5  # tests that do not count: a server and its sessions start slowly
BOUND = 20.0  # milliseconds per test

T = TypeVar("T")


class KitBench:
    """Repeated runs of one test, with the seconds of each step."""

    def __init__(self, shelf: Shelf, sessions: Sessions) -> None:
        self._shelf = shelf
        self._sessions = sessions
        self._handled = 0.0
        self._outbox = Outbox()
        self._outbox.on("Placed")(self._handle)
        self.steps: dict[str, list[float]] = {}

    def test(self) -> None:
        """Run the test once: borrow a database, publish, drain, put the database back."""
        self._handled = 0.0
        began = time.perf_counter()
        dsn = self._timed("a fresh database", self._shelf.lend)
        with Kit(self._outbox, dsn, sessions=self._sessions) as kit:
            self._timed("publish", lambda: kit.publish("Placed", {"total": 42}, aggregate_id="7"))
            self._timed("drain", kit.drain).assert_done()
        self._timed("put the database back", self._shelf.take_back)
        self._note("the test, without its handler", time.perf_counter() - began - self._handled)

    def table(self) -> str:
        """Return a table of the steps: least, median and 90th percentile in milliseconds."""
        lines = [f"{'ms':<32}{'least':>8}{'median':>8}{'p90':>8}"]
        for step, seconds in self.steps.items():
            milliseconds = [1_000 * each for each in seconds]
            three = min(milliseconds), median(milliseconds), quantiles(milliseconds, n=10)[-1]
            lines.append(f"{step:<32}" + "".join(f"{each:>8.1f}" for each in three))
        return "\n".join(lines)

    def _handle(self, event: DeliveredEvent) -> None:
        began = time.perf_counter()
        assert event.payload == {"total": 42}
        self._handled += time.perf_counter() - began

    def _timed(self, step: str, do: Callable[[], T]) -> T:
        began = time.perf_counter()
        done = do()
        self._note(step, time.perf_counter() - began)
        return done

    def _note(self, step: str, seconds: float) -> None:
        self.steps.setdefault(step, []).append(seconds)


def run(tests: int = TESTS, dsn: str | None = None) -> KitBench:
    """Run `tests` tests after the warm-up, on the server of `dsn` or on an embedded one, and return the bench."""
    with ExitStack() as stack:
        sessions = Sessions()
        stack.callback(sessions.close)
        server = stack.enter_context(server_of(dsn, "partbox"))
        shelf = stack.enter_context(closing(Shelf(server.dsn, server.template, sessions)))
        bench = KitBench(shelf, sessions)
        for _ in range(WARM):
            bench.test()
        bench.steps.clear()
        for _ in range(tests):
            bench.test()
    return bench


def main(arguments: list[str]) -> int:
    """Print the table. Return 1 if a test costs more than the bound."""
    tests = int(arguments[0]) if arguments else TESTS
    bench = run(tests, arguments[1] if len(arguments) > 1 else None)
    cost = 1_000 * median(bench.steps["the test, without its handler"])
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    verdict = "met" if cost < BOUND else "EXCEEDED"
    sys.stdout.write(f"{bench.table()}\n{tests} tests, {load}; bound {BOUND:g} ms: {verdict}\n")
    return int(cost >= BOUND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
