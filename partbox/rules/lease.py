"""Trust in a lease: a process's own, and a supervisor's in its children.

The database's clock decides who owns what; local clocks may only end trust early. Two of them: one that counts
suspended time too, and the wall clock, because a paused virtual machine may stop the first.
"""

from dataclasses import dataclass

HALF = 3
"""Leases for which the poller alone, or the saver, may be silent: a statement that hangs is cut earlier, and a new
connection is tried for one lease at most."""
MARGIN = 0.1  # of the lease: what is left to a handler's start between the check and the lease's end


def deadline(sent_at: float, lease: float) -> float:
    """The end of trust in a renewal sent at `sent_at` (seconds of the same clock)."""
    return sent_at + lease * (1 - MARGIN)


@dataclass(frozen=True, slots=True)
class Signs:
    """A supervisor's view of a child: seconds since it last ticked; seconds its longest handler has run (None: no
    handler runs); True if the kernel says that it is stopped; seconds since the more silent one of its poller and
    saver last ticked."""

    silent: float
    handler: float | None
    stopped: bool
    half: float = 0.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits, in seconds, for a child that is silent or busy."""

    lease: float
    handler_timeout: float
    drain_timeout: float


def vouches(signs: Signs, patience: Patience) -> bool:
    """True if the child's lease is to be renewed. Where the child, or half of it, is silent: only while a handler runs
    within its time and the child is not stopped. That handler may hold the interpreter; when it ends, and nothing more
    is read or saved, none will run."""
    if signs.silent < patience.lease and signs.half < HALF * patience.lease:
        return True
    return not signs.stopped and signs.handler is not None and signs.handler < patience.handler_timeout


def gives_up(signs: Signs, patience: Patience) -> bool:
    """True if the child is to be killed: silent for two leases beyond the first without a reason, or a handler far over
    its time."""
    if signs.handler is not None and signs.handler >= patience.handler_timeout + patience.drain_timeout:
        return signs.silent >= patience.lease
    running = signs.handler is not None and not signs.stopped
    return not running and (signs.silent >= 3 * patience.lease or signs.half >= (HALF + 2) * patience.lease)
