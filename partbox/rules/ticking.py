"""The time between two ticks of a process, by which it sees what is planned for it and what is due."""

TICK = 0.25  # seconds
SOON = 0.05  # at least, however soon a parked row is due
AWAITING = 0.01  # and while another is to release what is planned for this process; more if it takes long
PATIENT = 8


def until_next(soonest: float | None, awaited: float | None) -> float:
    """Seconds until the next tick: the first row is due in `soonest`, and a partition is awaited for `awaited` by now.

    Nobody tells when another process has released it. One that was awaited for t seconds stays without an owner for
    t / PATIENT at most, and who waits for a handler of hours asks no more often than anybody.
    """
    pause = TICK if soonest is None else min(TICK, max(soonest, SOON))
    return pause if awaited is None else min(pause, max(AWAITING, awaited / PATIENT))
