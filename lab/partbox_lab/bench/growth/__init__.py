"""The lines of growth: what the years bring, compared with the plain case in the same run."""

from partbox_lab.bench.group import LineSet
from partbox_lab.bench.growth import backlogs, instances, publishers, rebalance, records, subscriptions

GROWTH = LineSet(
    (
        records.GROUP,
        instances.GROUP,
        backlogs.GROUP,
        publishers.GROUP,
        subscriptions.GROUP,
        rebalance.GROUP,
    ),
    connections=1_200,
)
"""Every line of a run of growth."""
