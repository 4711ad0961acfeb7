"""Lines that are measured together: their budgets, and the function that measures those that are wanted."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from partbox_lab.bench.budget import Budget, Measured, Unmeasured
from partbox_lab.bench.ground import Ground

Results = Iterator[Measured | Unmeasured]


@dataclass(frozen=True, slots=True)
class Family:
    """`measure(ground, wanted)` yields one result for each wanted line."""

    budgets: tuple[Budget, ...]
    measure: Callable[[Ground, Set[str]], Results]


@dataclass(frozen=True, slots=True)
class LineSet:
    """The lines of one kind of run; `connections`: how many an embedded server is to allow for them."""

    families: tuple[Family, ...]
    connections: int = 100

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """Every line, in the order of the report."""
        return tuple(each for family in self.families for each in family.budgets)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.budgets)
