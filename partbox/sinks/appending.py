"""Appending of whole lines to a file or to standard output: either all lines arrive or none.

`write` may write only a part, for example on a full disk. The part is cut off again, because a torn line would swallow
the next one. Processes append under a lock, so that the cut does not hit the line of another process."""

import errno
import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Locks on files do not exclude the threads of one process from each other.
_lock = threading.Lock()


def open_for_append(path: Path) -> int:
    """Open a file for appending, created if missing, and return its descriptor. Raise OSError on failure."""
    # Opened for reading too, so that the last line can be checked. A pipe opened for reading and writing would never
    # wait for a reader.
    is_plain = not path.exists() or (path.is_file() and os.access(path, os.R_OK))
    access = os.O_RDWR if is_plain else os.O_WRONLY
    return os.open(path, access | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def append(path: Path, lines: bytes) -> None:
    """Append lines to a file, all or none, and sync it to the disk. Raise OSError on failure."""
    handle = open_for_append(path)
    try:
        with _lock_file(handle):
            _write_all(handle, b"\n" + lines if _is_torn(handle) else lines, synced=True)
    finally:
        os.close(handle)


def append_to_stdout(lines: bytes) -> None:
    """Print lines on standard output, not mixed with lines of other processes. Raise OSError on failure."""
    # Text that the application has printed comes first.
    sys.stdout.flush()
    handle = sys.stdout.fileno()
    with _lock_file(handle):
        _write_all(handle, lines, synced=False)


@contextmanager
def _lock_file(handle: int) -> Iterator[None]:
    """Keep other threads and processes from appending to this file or pipe."""
    # Forked processes share standard output, but not this lock.
    # Writes of more than a page to a pipe are not atomic.
    # Windows has no fcntl, and runs no worker.
    import fcntl

    kind = os.fstat(handle).st_mode
    with _lock:
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
            yield
            return
        fcntl.lockf(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(handle, fcntl.LOCK_UN)


def _write_all(handle: int, lines: bytes, *, synced: bool) -> None:
    """Write all lines to a file or pipe. After a failure, none of them stays in a file."""
    # `synced` waits until they are on the disk.
    remaining = memoryview(lines)
    try:
        while remaining:
            try:
                remaining = remaining[os.write(handle, remaining) :]
            # Another process that shares the pipe has made it non-blocking.
            except BlockingIOError:
                select.select((), (handle,), ())
        if synced:
            _sync_file(handle)
    except OSError:
        _truncate_written(handle, len(lines) - len(remaining))
        raise


def _truncate_written(handle: int, written: int) -> None:
    """Remove the last `written` bytes from a file after a failed write."""
    # The bytes stay if a process without the lock has written since. Pipes cannot be cut, nor can append-only files. In
    # such a file the next line begins with a line break.
    with suppress(OSError):
        end = os.lseek(handle, 0, os.SEEK_CUR)
        if written and os.fstat(handle).st_size == end:
            os.ftruncate(handle, end - written)
            os.lseek(handle, end - written, os.SEEK_SET)


def _is_torn(handle: int) -> bool:
    """Return True if the file ends within a line."""
    # A killed process or a crashed machine leaves it so.
    size = os.fstat(handle).st_size
    with suppress(OSError):
        return size > 0 and os.pread(handle, 1, size - 1) != b"\n"
    return False


def _sync_file(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        # A pipe or a device, which has no disk behind it.
        if error.errno != errno.EINVAL:
            raise
