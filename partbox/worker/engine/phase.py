"""The phases of a partition, from claim to release.

    claimed ──> LOADING ──> RUNNING ──> DRAINING ──> released
                   ^           │            │
                   └───────────┴────────────┘   the connection was lost: a new incarnation
    any ──> LOST

LOADING ends when the parked rows are known. No record is read before, because a parked row may block a new event. A
partition may start to drain while LOADING.

DRAINING starts no handler, and reads only the rest of a cut page. The phase ends when no handler runs and the release
is saved.

LOST is final. Nothing of the partition may be started or saved. The object stays only until its handlers have ended.
"""

from enum import Enum


class Phase(Enum):
    """The phase of a partition in its worker process, from claim to release or loss.

    It decides whether events are read, started and saved."""

    LOADING = "loading"
    RUNNING = "running"
    DRAINING = "draining"
    LOST = "lost"
