"""The phase of a partition, from claim to release.

    claimed ──> LOADING ──> RUNNING ──> DRAINING ──> released
                   ^           │            │
                   └───────────┴────────────┘   the connection was lost: a new incarnation
    any ──> LOST

LOADING lasts until the parked rows are known: nothing is read before, for a parked row may block what is new. A
partition may be drained before they are. DRAINING starts no handler and reads nothing but the rest of a cut page; it
ends when nothing runs and the release is saved. LOST is final: nothing of it may be started or saved, and its object
stays only until its handlers have ended.
"""

from enum import Enum


class Phase(Enum):
    """The state of a partition, and with it what may be done there."""

    LOADING = "loading"
    RUNNING = "running"
    DRAINING = "draining"
    LOST = "lost"
