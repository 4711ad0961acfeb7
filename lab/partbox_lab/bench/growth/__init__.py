"""Lines of growth: the effects of years of use, each compared with the plain case in the same run."""

from partbox_lab.bench.group import LineSet
from partbox_lab.bench.growth import (
    backlogs,
    handlers,
    instances,
    open_transactions,
    pooled,
    publishers,
    rebalance,
    records,
    starts,
    subscriptions,
    trouble,
    upkeep,
)

# All lines of a growth run.
GROWTH = LineSet(
    (
        records.GROUP,
        instances.GROUP,
        pooled.GROUP,
        backlogs.GROUP,
        handlers.GROUP,
        publishers.GROUP,
        open_transactions.GROUP,
        subscriptions.GROUP,
        trouble.GROUP,
        upkeep.GROUP,
        rebalance.GROUP,
        starts.GROUP,
    ),
    connections=1_200,
)
