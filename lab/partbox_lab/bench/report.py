"""The report of a run, for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from partbox_lab.bench.budget import LineResult, Standing
from partbox_lab.bench.machine import BenchServer, Machine

INTERRUPTED: Final = 130  # the exit code of shells after Ctrl-C
STOLEN: Final = 0.02  # the share above which values are not trusted
WIDE: Final = 150  # columns
STYLES: Final = {
    Standing.MET: "green",
    Standing.MISSED: "bold red",
    Standing.SKIPPED: "yellow",
    Standing.FAILED: "bold red",
}


@dataclass(frozen=True, slots=True)
class BenchReport:
    """Results of a run, with the machine and the server."""

    machine: Machine
    server: BenchServer
    quick: bool
    seconds: float
    stolen: float | None  # share of CPU time, None if the kernel does not count it
    interrupted: bool
    results: Sequence[LineResult]

    @property
    def ok(self) -> bool:
        """True if no line missed its budget or failed. Skipped lines do not count."""
        return not any(each.standing in (Standing.MISSED, Standing.FAILED) for each in self.results)

    @property
    def code(self) -> int:
        """The exit code: 130 if interrupted, 1 if a line missed its budget or failed, else 0."""
        return INTERRUPTED if self.interrupted else 0 if self.ok else 1

    def plain(self) -> dict[str, Any]:
        """Return the report as a dictionary for JSON."""
        return {
            "ok": self.ok,
            "interrupted": self.interrupted,
            "quick": self.quick,
            "seconds": round(self.seconds, 1),
            "stolen": self.stolen,
            "machine": asdict(self.machine) | asdict(self.server),
            "lines": [each.plain() for each in self.results],
        }

    def header(self) -> list[str]:
        """Return the lines on machine, server and circumstances."""
        return [*self.machine.lines(), self.server.line(), self._stolen()]

    def table(self, columns: int = WIDE) -> Table:
        """Return the results as a table. Below 150 columns it omits the descriptions, which `--list` shows."""
        wide = columns >= WIDE
        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        made.add_column("line", no_wrap=True)
        if wide:
            made.add_column("measured", overflow="fold")
        made.add_column("value", justify="right", no_wrap=True)
        made.add_column("budget", no_wrap=True)
        made.add_column("verdict", no_wrap=True)
        costs = any(each.cpu is not None for each in self.results)
        if costs:
            made.add_column("CPU/event", justify="right", no_wrap=True)
        made.add_column("", overflow="fold")
        for each in self.results:
            verdict = Text(each.standing, STYLES[each.standing])
            budget = each.budget
            what = [budget.what] if wide else []
            cost = [_cost(each)] if costs else []
            note = Text(each.note, "bright_black")
            made.add_row(budget.name, *what, shown(each), budget.shown(), verdict, *cost, note)
        return made

    def verdict(self) -> Text:
        """Return one line with the number of lines per verdict."""
        counts = {one: sum(each.standing is one for each in self.results) for one in Standing}
        said = ", ".join(f"{number} {one}" for one, number in counts.items() if number)
        if self.interrupted:
            return Text(f"interrupted: {said}", "bold yellow")
        return Text(said, "bold green" if self.ok else "bold red")

    def _stolen(self) -> str:
        took = f"{self.seconds:.0f} s{' of small sizes (--quick), so the values are rough' if self.quick else ''}"
        if self.stolen is None:
            return f"{took}; the kernel does not count stolen time"
        doubt = ", too much to trust the values: repeat the run" if self.stolen > STOLEN else ""
        return f"{took}, stolen time {self.stolen:.1%}{doubt}"


def _cost(result: LineResult) -> str:
    return "" if result.cpu is None else f"{result.cpu:.1f} µs"


def shown(result: LineResult) -> str:
    """Return the value of a result with its unit, or "-" without a value."""
    value = result.value
    if value is None:
        return "-"
    if abs(value) >= 100 or value == int(value):
        number = f"{value:,.0f}"
    else:
        number = f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"
    return f"{number} {result.budget.unit}".rstrip()
