"""Lines of the bench in groups that are measured together."""

from partbox_lab.bench.group import LineSet
from partbox_lab.bench.measurements import (
    bell,
    cluster,
    done,
    drain,
    idle,
    kill,
    latency,
    lists,
    memory,
    publish,
    shapes,
    transaction,
    waits,
)

# All lines of a plain run.
LINES = LineSet(
    (
        shapes.GROUP,
        waits.GROUP,
        waits.OF_LISTS,
        drain.GROUP,
        lists.GROUP,
        publish.GROUP,
        bell.GROUP,
        latency.GROUP,
        idle.GROUP,
        transaction.GROUP,
        done.GROUP,
        cluster.GROUP,
        kill.GROUP,
        memory.GROUP,
    )
)
