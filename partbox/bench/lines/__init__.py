"""The lines of the bench, by family: what is measured in one go."""

from partbox.bench.budget import Budget
from partbox.bench.family import Family
from partbox.bench.lines import bell, cluster, done, drain, idle, kill, latency, memory, publish, transaction

FAMILIES: tuple[Family, ...] = (
    drain.FAMILY,
    publish.FAMILY,
    bell.FAMILY,
    latency.FAMILY,
    idle.FAMILY,
    transaction.FAMILY,
    done.FAMILY,
    cluster.FAMILY,
    kill.FAMILY,
    memory.FAMILY,
)

BUDGETS: tuple[Budget, ...] = tuple(each for family in FAMILIES for each in family.budgets)
"""Every line, in the order of the report."""
