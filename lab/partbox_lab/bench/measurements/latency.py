"""Latency from commit to handler at three rates, with one process that owns everything, and its CPU."""

import time
from collections.abc import Iterator, Mapping, Set
from typing import Final

from partbox.text.wording import format_count
from partbox_lab.bench import statements
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Direction, Measured, Unmeasured
from partbox_lab.bench.cpu import ELSEWHERE, is_here
from partbox_lab.bench.group import LineGroup, Results
from partbox_lab.bench.handlers import Notebook, NoteTaker
from partbox_lab.bench.node import BenchNode
from partbox_lab.bench.rounds import latencies, quantile
from partbox_lab.bench.sender import KIND, sending

MEDIANS: Final = {1: 1.0, 100: 1.0, 1_000: 1.5}  # milliseconds by rate
TAILS: Final = {1: 3.0, 100: 3.0, 1_000: 4.0}  # milliseconds by rate
CPU_RATE: Final = 100
TO_ARRIVE: Final = 30.0  # seconds
WARM: Final = 10  # events

MEDIAN: Final = {
    rate: Budget(
        f"latency-{rate}-p50", f"latency from commit to handler at {rate:,}/s, median", Direction.AT_MOST, bound, "ms"
    )
    for rate, bound in MEDIANS.items()
}
TAIL: Final = {
    rate: Budget(
        f"latency-{rate}-p99", f"latency from commit to handler at {rate:,}/s, p99", Direction.AT_MOST, bound, "ms"
    )
    for rate, bound in TAILS.items()
}
CPU: Final = Budget(
    "cpu-100", "CPU of a worker and its server processes at 100 events/s, of a core", Direction.AT_MOST, 12, "%"
)


def figures(rate: int, sent: Mapping[int, int], arrived: Mapping[int, int]) -> Iterator[Measured]:
    """Yield the median and the p99 of a rate. Latency counts from the return of the commit, so a faster handler's is
    negative. The p99 of fewer than 100 samples is the slowest one."""
    found = latencies(sent, arrived)
    passed = (max(sent.values()) - min(sent.values())) / 1e9
    said = format_count(len(found), "sample") + (f", {_written((len(found) - 1) / passed)} a second" if passed else "")
    middle, tail, most = quantile(found, 0.5), quantile(found, 0.99), max(found)
    details = {"samples": float(len(found)), "p50_ms": middle, "p99_ms": tail, "max_ms": most}
    yield Measured(MEDIAN[rate].name, middle, said, details)
    slowest = f"; the slowest {most:.2f} ms" if len(found) >= 100 else ", too few for a p99: this is the slowest"
    yield Measured(TAIL[rate].name, tail, said + slowest, details)


def _written(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


class _Stopwatch:
    """Measurements on one node, rate by rate."""

    def __init__(self, database: BenchDatabase, node: BenchNode, notebook: Notebook) -> None:
        self._database = database
        self._node = node
        self._notebook = notebook
        self._arrived: dict[int, int] = {}

    def warm(self) -> None:
        """Deliver a few events that do not count."""
        outbox = self._database.outbox()
        for _ in range(WARM):
            with self._database.conn.transaction():
                outbox.publish(self._database.conn, KIND, {"number": -1})
        self._database.until(self._node.empty, "delivering", TO_ARRIVE)

    def run(self, rate: int) -> Results:
        """Yield the results of a rate, and the CPU if the rate is the one for it."""
        database, seconds = self._database, self._database.sizes.latency[rate]
        self._arrived.clear()
        with sending(database.dsn, database.schema, rate, seconds, database.folder / f"sent-{rate}") as sender:
            database.until(lambda: bool(sender.sent()), "the first event", TO_ARRIVE)
            busy, began = self._node.spent(), time.monotonic()
            database.until(lambda: sender.ended, "publishing", seconds + TO_ARRIVE)
            busy, passed = self._node.spent() - busy, time.monotonic() - began
            sent = sender.sent()
        database.until(lambda: self._have_arrived(sent), "delivering", TO_ARRIVE)
        yield from figures(rate, sent, self._arrived)
        if rate == CPU_RATE:
            yield Measured(CPU.name, 100 * busy / passed, f"{len(sent) / passed:,.0f} events/s for {passed:.1f} s")

    def _have_arrived(self, sent: Mapping[int, int]) -> bool:
        for note in self._notebook.new():
            self._arrived.setdefault(note.number, note.at)
        return sent.keys() <= self._arrived.keys()


def _measure(database: BenchDatabase, wanted: Set[str]) -> Results:
    asked = set(wanted)
    if CPU.name in wanted and not is_here(statements.backend(database.conn, database.schema)):
        yield Unmeasured(CPU.name, ELSEWHERE)
        asked.remove(CPU.name)
    rates = [rate for rate in MEDIANS if _names(rate) & asked]
    if not rates:
        return
    database.fresh()
    notebook = Notebook(database.folder / "latency")
    with BenchNode(database, database.outbox(NoteTaker(notebook.path)), 1) as node:
        watch = _Stopwatch(database, node, notebook)
        watch.warm()
        for rate in rates:
            yield from (each for each in watch.run(rate) if each.name in asked)


def _names(rate: int) -> set[str]:
    """Return the names of the lines that a rate measures."""
    return {MEDIAN[rate].name, TAIL[rate].name} | ({CPU.name} if rate == CPU_RATE else set())


GROUP = LineGroup((*(each for rate in MEDIANS for each in (MEDIAN[rate], TAIL[rate])), CPU), _measure)
