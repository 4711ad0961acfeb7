"""The lines of the bench, by family: what is measured in one go."""

from partbox_lab.bench.family import LineSet
from partbox_lab.bench.lines import bell, cluster, done, drain, idle, kill, latency, memory, publish, transaction

LINES = LineSet(
    (
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
)
"""Every line of a plain run."""
