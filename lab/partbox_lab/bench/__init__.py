"""The benchmark of partbox: lines with budgets, measured on a user's database and compared with raw PostgreSQL."""

from partbox_lab.bench.group import LineSet, chosen_lines
from partbox_lab.bench.growth import GROWTH
from partbox_lab.bench.measurements import LINES
from partbox_lab.bench.report import BenchReport
from partbox_lab.bench.run import BenchPlan, perform
from partbox_lab.bench.sizes import FULL, QUICK, Sizes

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
