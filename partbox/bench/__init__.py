"""The budgets of partbox, measured on a user's database beside raw PostgreSQL."""

from partbox.bench.choice import chosen_lines
from partbox.bench.lines import BUDGETS
from partbox.bench.report import BenchReport
from partbox.bench.run import BenchPlan, perform
from partbox.bench.sizes import FULL, QUICK, Sizes

__all__ = ["BUDGETS", "FULL", "QUICK", "BenchPlan", "BenchReport", "Sizes", "chosen_lines", "perform"]
