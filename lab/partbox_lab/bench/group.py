"""Lines that are measured together: their budgets, and the function that measures those that are wanted."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from difflib import get_close_matches

from partbox.errors import SettingsError
from partbox_lab.bench.bench_database import BenchDatabase
from partbox_lab.bench.budget import Budget, Measured, Unmeasured

Results = Iterator[Measured | Unmeasured]


@dataclass(frozen=True, slots=True)
class LineGroup:
    """`measure(database, wanted)` yields one result for each wanted line."""

    budgets: tuple[Budget, ...]
    measure: Callable[[BenchDatabase, Set[str]], Results]


@dataclass(frozen=True, slots=True)
class LineSet:
    """The lines of one kind of run; `connections`: how many an embedded server is to allow for them."""

    groups: tuple[LineGroup, ...]
    connections: int = 100

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Every line, in the order of the report."""
        return tuple(each for group in self.groups for each in group.budgets)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.budgets)


def chosen_lines(lines: LineSet, names: Sequence[str]) -> frozenset[str]:
    """The lines of these names, all of the set if none is named; SettingsError for a name that no line has."""
    known = [each.name for each in lines.budgets]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]}?" if close else "`partbox bench --list` names them"
            raise SettingsError(f"there is no line {name!r}: {hint}")
    return frozenset(names or known)
