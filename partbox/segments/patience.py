"""Steps that give way: what somebody else is using is left for the next look."""

from collections.abc import Callable

from psycopg.errors import CheckViolation, DeadlockDetected, LockNotAvailable


def tried(step: Callable[[], str | None]) -> str | None:
    """Return what is in the way of `step`; None: it is done.

    A lock that was not to be had, and an id that fell into the default segment a moment ago, are in the way as well.
    """
    try:
        return step()
    except (LockNotAvailable, DeadlockDetected):
        return "busy"
    except CheckViolation:
        return "passed"
