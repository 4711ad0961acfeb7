"""Steps that give way: what somebody else is using, or the server refuses, is left for the next look."""

from collections.abc import Callable
from typing import TypeVar

from psycopg import Error
from psycopg.errors import CheckViolation, DeadlockDetected, DiskFull, LockNotAvailable

from partbox.observe.logs.log_event import FULL_DISK

T = TypeVar("T")

CONNECTION_CLASS = "08"  # the class of SQLSTATE for connections; an error without any is of one, too


def try_step(step: Callable[[], T]) -> T | str:
    """Return what is in the way of `step`; None: it is done.

    A lock that was not to be had, and an id that fell into the default segment a moment ago, are in the way as well.
    """
    try:
        return step()
    except (LockNotAvailable, DeadlockDetected):
        return "busy"
    except CheckViolation:
        return "passed"


class Attempts:
    """Takes steps of which one that the server refuses keeps none of the others from being taken.

    `problem`: why the first one was refused, in one line; of a full disk with the remedy.
    """

    def __init__(self) -> None:
        self.problem: str | None = None

    def take(self, step: Callable[[], T], otherwise: T) -> T:
        """Return `step()`, or `otherwise` if it is refused. psycopg.Error if a connection is lost."""
        try:
            return step()
        except Error as error:
            if (error.sqlstate or CONNECTION_CLASS).startswith((CONNECTION_CLASS, "57P")):
                raise  # one that was lost or ended by the server: nothing was refused
            if self.problem is None:
                reason = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
                self.problem = FULL_DISK + reason if isinstance(error, DiskFull) else reason
            return otherwise
