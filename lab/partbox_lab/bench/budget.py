"""Budgets, and the verdict on what was measured. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Direction(StrEnum):
    """The side of the bound on which a value meets it."""

    AT_LEAST = "at least"
    AT_MOST = "at most"


class Standing(StrEnum):
    """The verdict on one line."""

    MET = "met"
    MISSED = "missed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Budget:
    """A line: its name for `--only`, its meaning, and its bound; `unit` is empty for ratios and counts."""

    name: str
    what: str
    direction: Direction
    bound: float
    unit: str = ""

    def judge(self, value: float) -> Standing:
        """MET or MISSED; what is no number never meets a budget."""
        met = value >= self.bound if self.direction is Direction.AT_LEAST else value <= self.bound
        return Standing.MET if met else Standing.MISSED

    def shown(self) -> str:
        """The bound, such as "≤ 3 ms"."""
        sign = "≥" if self.direction is Direction.AT_LEAST else "≤"
        return f"{sign} {self.bound:g} {self.unit}".rstrip()


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of a line. `note` tells people the rest, `details` gives programs its numbers; `cpu`: microseconds of
    CPU of the worker for each event."""

    name: str
    value: float
    note: str = ""
    details: Mapping[str, float | list[float]] = field(default_factory=dict)
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A line that could not be measured, and the reason; `failed`: something went wrong."""

    name: str
    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class LineResult:
    """A line with its verdict; `value` is None if it was not measured, then `note` is the reason."""

    budget: Budget
    value: float | None
    standing: Standing
    note: str
    details: Mapping[str, float | list[float]]
    cpu: float | None = None

    def plain(self) -> dict[str, Any]:
        """The line as JSON shows it."""
        own = {"value": self.value, "verdict": self.standing.value, "cpu_us": self.cpu, "note": self.note}
        return asdict(self.budget) | own | {"details": dict(self.details)}


def judged(budget: Budget, found: Measured | Unmeasured) -> LineResult:
    """The result of a line. A line that was not measured is never met."""
    if isinstance(found, Unmeasured):
        standing = Standing.FAILED if found.failed else Standing.SKIPPED
        return LineResult(budget, None, standing, found.reason, {})
    return LineResult(budget, found.value, budget.judge(found.value), found.note, found.details, found.cpu)
