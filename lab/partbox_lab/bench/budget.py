"""Budgets of the bench, measured values, and the verdict on each. Pure code without I/O."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Direction(StrEnum):
    """The side of the bound on which a value meets its budget."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


class Standing(StrEnum):
    """The verdict on a line of the bench."""

    MET = "met"
    MISSED = "missed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Budget:
    """The bound of a line. `name` is for `--only`, and `unit` is empty for ratios and counts."""

    name: str
    what: str
    direction: Direction
    bound: float
    unit: str = ""

    def judge(self, value: float) -> Standing:
        """Return MET if `value` is within the bound, else MISSED. NaN never meets a budget."""
        met = value >= self.bound if self.direction is Direction.AT_LEAST else value <= self.bound
        return Standing.MET if met else Standing.MISSED

    def shown(self) -> str:
        """Return the bound as text, for example `≤ 5 B`."""
        sign = "≥" if self.direction is Direction.AT_LEAST else "≤"
        return f"{sign} {self.bound:g} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of a line, with a note for people and details for programs."""

    name: str
    value: float
    note: str = ""
    details: Mapping[str, float | list[float]] = field(default_factory=dict)
    cpu: float | None = None  # microseconds of the worker per event


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A line that was not measured: skipped, or `failed` because of an error."""

    name: str
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class LineResult:
    """A line of the report: budget, value and verdict. Without a value, the note holds the reason."""

    budget: Budget
    value: float | None
    standing: Standing
    note: str
    details: Mapping[str, float | list[float]]
    cpu: float | None = None

    def plain(self) -> dict[str, Any]:
        """Return the result as a dictionary for JSON."""
        own = {"value": self.value, "verdict": self.standing.value, "cpu_us": self.cpu, "note": self.note}
        return asdict(self.budget) | own | {"details": dict(self.details)}


def judged(budget: Budget, found: Measured | Unmeasured) -> LineResult:
    """Return the result of a line: its value with a verdict, or skipped or failed. A line that was not measured is
    never met."""
    if isinstance(found, Unmeasured):
        standing = Standing.FAILED if found.failed else Standing.SKIPPED
        return LineResult(budget, None, standing, found.reason, {})
    return LineResult(budget, found.value, budget.judge(found.value), found.note, found.details, found.cpu)
