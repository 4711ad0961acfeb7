"""Lines of the bench in groups that share a measurement."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches

from partbox.errors import SettingsError
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Measured, Unmeasured

Results = Iterator[Measured | Unmeasured]


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Budgets that one function measures. `measure(database, wanted)` yields one result for each wanted line."""

    budgets: tuple[Budget, ...]
    measure: Callable[[BenchDatabase, Set[str]], Results]


@dataclass(frozen=True, slots=True)
class LineSet:
    """The lines of one kind of run, in the report's order. An embedded server allows `connections`."""

    groups: tuple[LineGroup, ...]
    connections: int = 100

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of all groups, in order."""
        return tuple(each for group in self.groups for each in group.budgets)

    @property
    def names(self) -> frozenset[str]:
        """The names of all lines."""
        return frozenset(each.name for each in self.budgets)


def chosen_lines(lines: LineSet, names: Sequence[str]) -> frozenset[str]:
    """Return the chosen names, or all if none are given. Raise SettingsError for an unknown name, with the closest
    known one."""
    known = [each.name for each in lines.budgets]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`partbox bench --list` names them"
            raise SettingsError(f"there is no line {name!r}: {hint}")
    return frozenset(names or known)
