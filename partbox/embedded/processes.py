"""Other processes of this machine, and locks on files, which disappear with their holders. Windows has no fcntl and no
embedded server, but this module must still import there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

try:
    import psutil
except ModuleNotFoundError as missing:
    text = (
        'the embedded PostgreSQL and worker processes need psutil: pip install "partbox[embedded]" or "partbox[worker]"'
    )
    raise ModuleNotFoundError(text, name=missing.name) from None

with suppress(ImportError):
    import fcntl

T = TypeVar("T")
U = TypeVar("U")


def read_arguments(pid: int) -> list[str]:
    """Return the command line of the process with this pid, or an empty list if the process does not exist."""
    return _ask_process(pid, psutil.Process.cmdline, [])


def is_stopped(pid: int) -> bool:
    return _ask_process(pid, psutil.Process.status, None) in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def is_alive(pid: int) -> bool:
    """Return True if the process with this pid is running and is not a zombie."""
    return _ask_process(pid, psutil.Process.status, psutil.STATUS_DEAD) not in (
        psutil.STATUS_ZOMBIE,
        psutil.STATUS_DEAD,
    )


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Lock a file against other processes and threads during the `with` block."""
    # The file is created if missing.
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_shared(path: Path) -> IO[bytes]:
    """Take a shared lock on the file `path`, and return the open file. The lock is held until the file is closed."""
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def try_lock_alone(file: IO[bytes]) -> bool:
    """Turn a shared file lock into an exclusive lock without waiting. Return False if others share the lock."""
    # The shared lock was taken by `lock_shared`.
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
