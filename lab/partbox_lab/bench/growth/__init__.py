"""Lines of growth: the effects of years of use, each compared with the plain case in the same run."""

from partbox_lab.bench.group import LineSet
from partbox_lab.bench.growth import (
    backlogs,
    instances,
    open_transactions,
    pooled,
    publishers,
    rebalance,
    records,
    starts,
    subscriptions,
    upkeep,
)

# All lines of a growth run.
GROWTH = LineSet(
    (
        records.GROUP,
        instances.GROUP,
        pooled.GROUP,
        backlogs.GROUP,
        publishers.GROUP,
        open_transactions.GROUP,
        subscriptions.GROUP,
        upkeep.GROUP,
        rebalance.GROUP,
        starts.GROUP,
    ),
    connections=1_200,
)
