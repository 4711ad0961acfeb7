"""The budgets of partbox, measured on a user's database beside raw PostgreSQL."""

from partbox.bench.choice import chosen_lines
from partbox.bench.family import LineSet
from partbox.bench.growth import GROWTH
from partbox.bench.lines import LINES
from partbox.bench.report import BenchReport
from partbox.bench.run import BenchPlan, perform
from partbox.bench.sizes import FULL, QUICK, Sizes

__all__ = [
    "FULL",
    "GROWTH",
    "LINES",
    "QUICK",
    "BenchPlan",
    "BenchReport",
    "LineSet",
    "Sizes",
    "chosen_lines",
    "perform",
]
