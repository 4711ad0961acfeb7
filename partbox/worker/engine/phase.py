"""The phases of a partition, from claim to release.

    claimed ──> LOADING ──> RUNNING ──> DRAINING ──> released
                   ^           │            │
                   └───────────┴────────────┘   the connection was lost: a new incarnation
    any ──> LOST

LOADING, from which a partition may also start to drain, ends when the parked rows are known. No record is read before,
because a parked row may block a new event. DRAINING starts no handler, and reads only the rest of a cut page. LOST is
final: nothing of the partition may be started or saved."""

from enum import Enum


class Phase(Enum):
    """The phase of an owned partition, which decides whether its events are read, started and saved."""

    LOADING = "loading"
    RUNNING = "running"
    DRAINING = "draining"
    LOST = "lost"
