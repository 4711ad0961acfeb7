"""The exit codes of worker processes, and a supervisor's verdict on them."""

from enum import Enum, auto

FATAL = 3  # another try would fail the same way
OVERDUE = 4  # a handler exceeded its time and did not end
UNFIT = 5  # the database does not fit this version


class Exit(Enum):
    """The reason why a worker process has ended, by which its supervisor decides how to react."""

    # The process was asked to end.
    EXPECTED = auto()
    # The process was asked to end, and was killed because it did not end in time.
    KILLED = auto()
    # Its database cannot be worked for, and there are several databases.
    DATABASE_UNFIT = auto()
    # A replacement could not work either.
    CANNOT_WORK = auto()
    CRASHED = auto()


def judge_exit(code: int | None, *, drained: bool, stopping: bool, killed: bool, several: bool) -> Exit:
    """Return the reason why a worker process has ended with exit code `code`."""
    # `drained`: the process was asked to end. `stopping`: its whole node was. `killed`: it was killed. `several`: there
    # are several databases.
    if drained and code == 0:
        return Exit.EXPECTED
    if code == UNFIT and several:
        return Exit.DATABASE_UNFIT
    if code in (FATAL, UNFIT):
        return Exit.CANNOT_WORK
    if stopping:
        return Exit.KILLED if killed else Exit.EXPECTED
    return Exit.CRASHED
