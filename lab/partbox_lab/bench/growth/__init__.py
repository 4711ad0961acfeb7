"""The lines of growth: what the years bring, compared with the plain case in the same run."""

from partbox_lab.bench.family import LineSet
from partbox_lab.bench.growth import backlogs, instances, publishers, rebalance, records, subscriptions

GROWTH = LineSet(
    (
        records.FAMILY,
        instances.FAMILY,
        backlogs.FAMILY,
        publishers.FAMILY,
        subscriptions.FAMILY,
        rebalance.FAMILY,
    ),
    connections=1_200,
)
"""Every line of a run of growth."""
