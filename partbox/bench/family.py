"""Lines that are measured together: their budgets, and the function that measures those that are wanted."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from partbox.bench.budget import Budget, Measured, Unmeasured
from partbox.bench.ground import Ground

Results = Iterator[Measured | Unmeasured]


@dataclass(frozen=True, slots=True)
class Family:
    """`measure(ground, wanted)` yields one result for each wanted line."""

    budgets: tuple[Budget, ...]
    measure: Callable[[Ground, Set[str]], Results]
