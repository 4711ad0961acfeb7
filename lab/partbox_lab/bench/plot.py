"""The plot of a report by matplotlib, which the extra `plot` installs."""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from partbox.errors import PartboxError, SettingsError
from partbox_lab.bench.budget import Direction, LineResult, Standing
from partbox_lab.bench.report import BenchReport, shown

COLOURS: Final = {Standing.MET: "#2e7d32", Standing.MISSED: "#c62828"}
# A logarithmic axis has no zero.
LEAST: Final = 0.01
MOST: Final = 100.0


def drawable(path: Path) -> Any:
    """Return matplotlib. Raise SettingsError before anything is measured, if it is missing or cannot write such a
    file."""
    try:
        matplotlib = import_module("matplotlib")
        figure = import_module("matplotlib.figure").Figure()
    except ModuleNotFoundError:
        raise SettingsError("--plot needs the library matplotlib: pip install 'partbox[plot]'") from None
    kinds = figure.canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in kinds:
        raise SettingsError(f"--plot cannot write {str(path)!r}: name a file such as bench.svg or bench.png")
    if not path.resolve().parent.is_dir():
        raise SettingsError(f"--plot cannot write {str(path)!r}: there is no such folder, make it first")
    return matplotlib


def headroom(result: LineResult) -> float:
    """Return the factor by which a value is better than its bound, limited to 0.01 and 100. Below 1 the budget is
    missed."""
    assert result.value is not None
    bound, value = result.budget.bound, result.value
    better, worse = (value, bound) if result.budget.direction is Direction.AT_LEAST else (bound, value)
    if worse <= 0:
        return MOST if better >= worse and result.standing is Standing.MET else LEAST
    return min(MOST, max(LEAST, better / worse))


def draw(report: BenchReport, path: Path) -> None:
    """Write the plot: one bar for each measured line, right of the middle if its budget is met."""
    drawable(path)
    measured = [each for each in report.results if each.value is not None][::-1]
    figure = import_module("matplotlib.figure").Figure(figsize=(10, 1.5 + 0.35 * len(measured)), layout="constrained")
    axes = figure.subplots()
    widths = [headroom(each) for each in measured]
    names = [f"{each.budget.name}  {each.budget.shown()}" for each in measured]
    bars = axes.barh(
        names, [width - 1 for width in widths], left=1, color=[COLOURS[each.standing] for each in measured]
    )
    axes.bar_label(bars, [shown(each) for each in measured], padding=4)
    axes.set_xscale("log")
    axes.set_xlim(LEAST / 2, MOST * 4)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel("times better than the budget (right of the line: met)")
    machine, postgresql = report.machine, report.server.postgresql
    axes.set_title(f"partbox {machine.partbox}, PostgreSQL {postgresql}; {machine.cpu}, {machine.usable} usable")
    try:
        figure.savefig(path)
    except OSError as error:
        raise PartboxError(f"--plot cannot write {str(path)!r}: {error.strerror}: name another file") from None
