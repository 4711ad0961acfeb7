"""Processes of others: what they are, and locks between them, on files.

A lock vanishes with its holder, however that one ends. Windows has no fcntl, and no embedded server; what imports this
file must load there all the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

import psutil

with suppress(ImportError):
    import fcntl

T = TypeVar("T")
U = TypeVar("U")


def arguments(pid: int) -> list[str]:
    """The command line of a process; empty if there is none."""
    return _ask_process(pid, psutil.Process.cmdline, [])


def is_stopped(pid: int) -> bool:
    """True if the kernel says that it is stopped (SIGSTOP, a debugger)."""
    return _ask_process(pid, psutil.Process.status, None) in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def is_alive(pid: int) -> bool:
    """Return whether a process runs. One that has ended does not, though nobody has collected it yet."""
    return _ask_process(pid, psutil.Process.status, psutil.STATUS_DEAD) not in (
        psutil.STATUS_ZOMBIE,
        psutil.STATUS_DEAD,
    )


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold `path` (made if missing) alone; waits for whoever holds it, threads of this process included."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_shared(path: Path) -> IO[bytes]:
    """Hold `path` together with others until the returned file is closed."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def try_lock_alone(file: IO[bytes]) -> bool:
    """True if nobody else holds what `lock_shared` returned; the hold has then become exclusive. Never waits."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ask_process(pid: int, question: Callable[[psutil.Process], T], otherwise: U) -> T | U:
    """The answer about a process, `otherwise` if there is none to ask about."""
    try:
        return question(psutil.Process(pid))
    except psutil.Error:
        return otherwise
