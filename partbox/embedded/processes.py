"""Other processes of this machine, and locks between processes on files.

A lock disappears with its holder, however the holder ends. Windows has no fcntl and no embedded server, but this module
must still import there."""

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
    """Return the command line of a process, or an empty list if it does not exist."""
    return _ask_process(pid, psutil.Process.cmdline, [])


def is_stopped(pid: int) -> bool:
    """Return True if a process is stopped (by SIGSTOP or a debugger)."""
    return _ask_process(pid, psutil.Process.status, None) in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def is_alive(pid: int) -> bool:
    """Return True if a process runs. A zombie does not."""
    return _ask_process(pid, psutil.Process.status, psutil.STATUS_DEAD) not in (
        psutil.STATUS_ZOMBIE,
        psutil.STATUS_DEAD,
    )


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`, which is created if missing. Excludes threads of this process too."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_shared(path: Path) -> IO[bytes]:
    """Hold a shared lock on `path` until the returned file is closed."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def try_lock_alone(file: IO[bytes]) -> bool:
    """Make the lock of `lock_shared` exclusive without waiting. Return False if others hold it too."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _ask_process(pid: int, question: Callable[[psutil.Process], T], otherwise: U) -> T | U:
    try:
        return question(psutil.Process(pid))
    except psutil.Error:
        return otherwise
