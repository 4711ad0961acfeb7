"""When a process may trust that it holds its lease, and when a supervisor stops vouching for one.

The database's clock decides who owns what; local clocks may only end trust early. Two of them: one that counts
suspended time too, and the wall clock, because a paused virtual machine may stop the first.
"""

from dataclasses import dataclass

MARGIN = 0.1  # of the lease: what is left to a handler's start between the check and the lease's end


def deadline(sent_at: float, lease: float) -> float:
    """Until when a renewal sent at `sent_at` is trusted (seconds of the same clock)."""
    return sent_at + lease * (1 - MARGIN)


@dataclass(frozen=True, slots=True)
class Signs:
    """What a supervisor sees of a child: seconds since it last ticked, seconds its longest handler has run (None: no
    handler runs), and whether the kernel says that it is stopped."""

    silent: float
    handler: float | None
    stopped: bool


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long a child may be silent or busy (seconds)."""

    lease: float
    handler_timeout: float
    drain_timeout: float


def vouches(signs: Signs, patience: Patience) -> bool:
    """Renew the child's lease? A silent one only while a handler runs within its time and it is not stopped."""
    if signs.silent < patience.lease:
        return True
    return not signs.stopped and signs.handler is not None and signs.handler < patience.handler_timeout


def gives_up(signs: Signs, patience: Patience) -> bool:
    """Kill the child? Silent for two leases beyond the first without a reason, or a handler far over its time."""
    if signs.handler is not None and signs.handler >= patience.handler_timeout + patience.drain_timeout:
        return signs.silent >= patience.lease
    running = signs.handler is not None and not signs.stopped
    return not running and signs.silent >= 3 * patience.lease
