"""The report of a run: for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from partbox_lab.bench.budget import LineResult, Standing
from partbox_lab.bench.machine import BenchServer, Machine

INTERRUPTED: Final = 130  # as shells say of Ctrl-C
STOLEN: Final = 0.02  # the share from which on values are not to be trusted
WIDE: Final = 150  # columns
STYLES: Final = {
    Standing.MET: "green",
    Standing.MISSED: "bold red",
    Standing.SKIPPED: "yellow",
    Standing.FAILED: "bold red",
}


@dataclass(frozen=True, slots=True)
class BenchReport:
    """`stolen`: the share of the machine's time that its host gave to others meanwhile, None where nobody counts it."""

    machine: Machine
    server: BenchServer
    quick: bool
    seconds: float
    stolen: float | None
    interrupted: bool
    results: Sequence[LineResult]

    @property
    def ok(self) -> bool:
        """True if no budget was missed and no line failed; skipped lines do not count."""
        return not any(each.standing in (Standing.MISSED, Standing.FAILED) for each in self.results)

    @property
    def code(self) -> int:
        """The exit code."""
        return INTERRUPTED if self.interrupted else 0 if self.ok else 1

    def plain(self) -> dict[str, Any]:
        """The report as JSON shows it."""
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
        """The machine, the server and the circumstances, a line each."""
        return [*self.machine.lines(), self.server.line(), self._stolen()]

    def table(self, columns: int = WIDE) -> Table:
        """The lines as a table; on less than `WIDE` columns without what each of them measures, which `--list` says."""
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
        """One line: how many budgets were met."""
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
    """The CPU of the worker for an event, where it was measured."""
    return "" if result.cpu is None else f"{result.cpu:.1f} µs"


def shown(result: LineResult) -> str:
    """The value with its unit; "-" if there is none."""
    value = result.value
    if value is None:
        return "-"
    if abs(value) >= 100 or value == int(value):
        number = f"{value:,.0f}"
    else:
        number = f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"
    return f"{number} {result.budget.unit}".rstrip()
