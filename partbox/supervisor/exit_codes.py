"""The exit codes of worker processes, and the verdict of their supervisor on one."""

from enum import Enum, auto

FATAL = 3  # another try would fail the same way
OVERDUE = 4  # a handler was over its time and would not end
UNFIT = 5  # the database is not as this version needs it


class Exit(Enum):
    """The reason for which a process has ended."""

    EXPECTED = auto()  # it was told to end
    KILLED = auto()  # it was told to end, and killed because it did not in time
    DATABASE_UNFIT = auto()  # its database, one of several, cannot be worked for
    CANNOT_WORK = auto()  # neither could a replacement
    CRASHED = auto()


def judge_exit(code: int | None, *, drained: bool, stopping: bool, killed: bool, several: bool) -> Exit:
    """The reason for the exit code `code`.

    `drained`: the process was told to end; `stopping`: its whole node is; `several`: there are several databases.
    """
    if drained and code == 0:
        return Exit.EXPECTED
    if code == UNFIT and several:
        return Exit.DATABASE_UNFIT
    if code in (FATAL, UNFIT):
        return Exit.CANNOT_WORK
    if stopping:
        return Exit.KILLED if killed else Exit.EXPECTED
    return Exit.CRASHED
