"""Run steps that give way: anything in use, or refused by the server, is left for the next maintenance."""

from collections.abc import Callable
from typing import TypeVar

from psycopg import Error
from psycopg.errors import CheckViolation, DeadlockDetected, DiskFull, LockNotAvailable

from partbox.observe.logs.log_event import FULL_DISK

T = TypeVar("T")

# The class of SQLSTATEs for connections. An error without an SQLSTATE belongs to it too.
CONNECTION_CLASS = "08"


def try_step(step: Callable[[], T]) -> T | str:
    """Run a maintenance step and return its result, or "busy" or "passed" if the step is not possible now."""
    # The result is "busy" if another session held a lock, and "passed" if an id fell into the default segment.
    try:
        return step()
    except (LockNotAvailable, DeadlockDetected):
        return "busy"
    except CheckViolation:
        return "passed"


class Attempts:
    """A runner of maintenance steps that continues with the next step if the server refuses one.

    `problem` says why the first refused step was refused, in one line, with the remedy for a full disk."""

    def __init__(self) -> None:
        self.problem: str | None = None

    def run_step(self, step: Callable[[], T], otherwise: T) -> T:
        """Run a step and return its result. If the server refuses it, return `otherwise`."""
        # The reason of a refusal is noted. A lost connection raises `psycopg.Error`.
        try:
            return step()
        except Error as error:
            if (error.sqlstate or CONNECTION_CLASS).startswith((CONNECTION_CLASS, "57P")):
                # The connection was lost, or the server ended it (57P), so nothing was refused.
                raise
            if self.problem is None:
                reason = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
                self.problem = FULL_DISK + reason if isinstance(error, DiskFull) else reason
            return otherwise
